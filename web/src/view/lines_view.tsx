// A head as lines from queries to keys.

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { bothNames, columnMeans, columnWeights, LINES_LIMIT } from "../data/filtered_block.ts";
import { formatNumber, formatWeight, shortWeight } from "../data/format.ts";
import { scaleOf } from "../data/head_summary.ts";
import { type Media, type Piece, pieceOf } from "../data/media.ts";
import { type Entry, named, printed, rowOf } from "../data/tokens.ts";
import { type Columns, columnsOf, lineMarks, rowY } from "../layout/lines_layout.ts";
import { moved } from "../layout/scene.ts";
import { canvasOf, labelEms } from "../paint/painter.ts";
import { inkOn } from "../paint/roles.ts";
import { cssOf } from "../paint/theme.ts";
import type { Side } from "../state/session.ts";
import { Button, classes, consume, Drawing, px } from "./controls.tsx";
import { reveal, useExplorer, useSession, useSize } from "./explorer_context.ts";
import { drawnHeads, groundOf, headColor, linesInput } from "./selected_head.ts";

/** Longer texts draw only what is near the part in view. */
const MANY = 150;
/** Pixels that are drawn beyond the view, and by which the drawn part moves. */
const BEYOND = 400;

const MIN_ROW = { wide: 15, middle: 15, phone: 32 } as const;

export function LinesTab() {
  const session = useSession();
  const { filtered } = session.sides.value[0];
  const isPair = session.sides.value.length > 1 && session.compared !== null && !session.overlaid;
  const hasRow = session.focus(session.sides.value[0]).row >= 0;
  if (isPair && hasRow && filtered.columns.length <= LINES_LIMIT) return <Butterfly />;
  return <LinesPanels />;
}

function LinesPanels() {
  const session = useSession();
  const { ref, width, height } = useSize<HTMLDivElement>();
  const [block, setBlock] = useState(0);
  const sides = session.shown.value;
  const half = sides.length > 1 ? (width - 1) / 2 : width;
  const view = { top: (block - 1) * BEYOND, bottom: (block + 2) * BEYOND + height };
  const { word, key, filter } = session.selection.value;
  useLayoutEffect(() => {
    const axis = word === null ? "key" : "query";
    const pinned = ref.current?.querySelector<HTMLElement>(`.words.${axis} .word.pin`);
    const heading = ref.current?.querySelector<HTMLElement>(".heading")?.offsetHeight ?? 0;
    if (pinned && height > 0) reveal(ref.current!, pinned, heading);
    follow();
  }, [word, key, sides, filter, width, height]);
  return (
    <div class="panels" ref={ref} onScroll={follow}>
      {width > 0 &&
        sides.map((side) => <Panel key={side.trace} {...{ side, view, height }} width={half} />)}
    </div>
  );

  function follow(): void {
    setBlock(Math.floor((ref.current?.scrollTop ?? 0) / BEYOND));
  }
}

type View = Readonly<{ top: number; bottom: number }>;

interface PanelProps {
  readonly side: Side;
  readonly width: number;
  readonly height: number;
  readonly view: View;
}

function Panel({ side, width, height, view }: PanelProps) {
  const session = useSession();
  const theme = session.theme.value;
  const { filter } = session.selection.value;
  const { filtered } = side;
  const matrix = session.matrix(side);
  const layout = session.layout.value;
  const heads = session.overlaid?.length ?? 1;
  const columns = useMemo(
    () =>
      columnsOf({
        width,
        height: height - 40,
        rows: filtered.rows.length,
        columns: filtered.columns.length,
        rowEms: labelEms(filtered.rows),
        columnEms: labelEms(filtered.columns),
        least: MIN_ROW[layout],
        numbers: heads > 1 ? 84 + 46 * heads : 0,
      }),
    [filtered, width, height, layout, heads],
  );
  const { row, column } = session.focus(side);
  const drawn = drawnHeads(session, side);
  const hues = drawn.map(({ color }) => color.join()).join("/");
  const dashed = session.edits.isOff(session.selection.value);
  const isLong = Math.max(filtered.rows.length, filtered.columns.length) > MANY;
  const top = isLong ? Math.max(0, view.top) : 0;
  const bottom = isLong ? Math.min(columns.height, view.bottom) : columns.height;
  const marks = useMemo(
    () =>
      drawn.flatMap(({ color, matrix }, i) =>
        matrix
          ? lineMarks(
              {
                ...linesInput(session, side, matrix),
                ...{ color, isAlone: drawn.length > 1, view: { top, bottom } },
              },
              columns,
              theme,
            ).map((mark) => moved(mark, 0, 3 * (i - (drawn.length - 1) / 2) - top))
          : [],
      ),
    [
      ...drawn.map((head) => head.matrix),
      ...[columns, row, column, filter, hues, dashed, theme, top, bottom],
    ],
  );
  const by = row >= 0 ? `by “${named(filtered.rows[row])}”` : column < 0 ? "on average" : "";
  const isNarrow = columns.numbers.bar === 0;
  return (
    <div class={`panel ${matrix ? "" : "waiting"}`}>
      <div class="heading" style={px({ width: columns.width })}>
        <b style={px({ right: columns.width - columns.labels.left })}>
          {side.letter && <span class="letter">{side.letter} </span>}reads ▸
        </b>
        <span class="read" style={px({ minWidth: columns.width - columns.labels.right - 4 })}>
          <b>is read</b> {isNarrow && by}
        </span>
        {!isNarrow && (
          <span class="mut" style={px({ left: columns.numbers.x })}>
            {by}
          </span>
        )}
      </div>
      <div class="columns" style={px({ width: columns.width, height: columns.height })}>
        <div class="drawn" style={px({ top })}>
          <Drawing marks={marks} width={columns.width} height={Math.max(1, bottom - top)} />
        </div>
        <Edges side={side} columns={columns} />
        <Words side={side} axis="query" columns={columns} top={top} bottom={bottom} />
        <Words side={side} axis="key" columns={columns} top={top} bottom={bottom} />
      </div>
    </div>
  );
}

/** Bars along the columns, in the colors of the texts. */
function Edges({ side, columns }: { side: Side; columns: Columns }) {
  const runs = (entries: readonly Entry[]) => {
    const runs: { from: number; to: number; input: string }[] = [];
    entries.forEach((entry, i) => {
      if (entry.special) return;
      const input = side.letter ? side.letter.toLowerCase() : entry.segment === 1 ? "b" : "a";
      const last = runs.at(-1);
      if (last && last.input === input && last.to === i - 1) last.to = i;
      else runs.push({ from: i, to: i, input: input });
    });
    return runs;
  };
  const bar = (x: number) => (run: { from: number; to: number; input: string }) => (
    <i
      key={`${x}/${run.from}`}
      class={`edge ${run.input}`}
      style={px({
        left: x,
        top: columns.top + run.from * columns.rowHeight,
        height: (run.to - run.from + 1) * columns.rowHeight,
      })}
    />
  );
  return (
    <>
      {runs(side.filtered.rows).map(bar(columns.lines.left - 4))}
      {runs(side.filtered.columns).map(bar(columns.lines.right))}
    </>
  );
}

interface WordsProps extends View {
  readonly side: Side;
  readonly axis: "query" | "key";
  readonly columns: Columns;
}

function Words({ side, axis, columns, top, bottom }: WordsProps) {
  const explorer = useExplorer();
  const { session } = explorer;
  const selection = session.selection.value;
  const isReaders = axis === "query";
  const { filtered } = side;
  const entries = isReaders ? filtered.rows : filtered.columns;
  const tokens = isReaders ? side.block.queryTokens : side.block.keyTokens;
  const hasPieces = side.now.media.pictures.length > 0;
  const { row, column } = session.focus(side);
  const matrix = session.matrix(side);
  const reading = !isReaders && row >= 0 ? session.row(side, row) : null;
  const readers = isReaders && row < 0 && column >= 0 && matrix;
  const averages = useMemo(
    () => (!isReaders && row < 0 && column < 0 && matrix ? columnMeans(matrix) : null),
    [isReaders, row, column, matrix],
  );
  const drawn = drawnHeads(session, side);
  const color = drawn[0].color;
  const isOverlay = drawn.length > 1;
  const scale = reading ? scaleOf(reading.weights) : 1;
  const pinned = session.place(side, isReaders ? selection.word : selection.key, axis);
  const field = isReaders ? "word" : "key";
  const numberOf = (i: number): number | null => {
    if (reading) return reading.weights[i];
    if (averages) return averages[i];
    return readers ? readers.weights[i * readers.columns + column] : null;
  };
  const focused = isReaders ? row : column;
  const pin = (entry: Entry) => {
    const now = session.selection.peek()[field];
    const isNow = now !== null && entry.positions.includes(now);
    session.point({});
    session.update({ [field]: isNow ? null : entry.positions[0] });
    if (session.layout.value === "phone" && isReaders) explorer.open.value = isNow ? "" : "word";
  };
  const move = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    const list = event.currentTarget as HTMLElement;
    const root = list.getRootNode() as ShadowRoot;
    const options = [...list.querySelectorAll<HTMLElement>("[role=option]")];
    const focused = options.indexOf(root.activeElement as HTMLElement);
    if (step) options[Math.min(options.length - 1, Math.max(0, focused + step))]?.focus();
    else if (event.key === "Enter" || event.key === " ") {
      const position = Number(options[focused]?.dataset.position);
      pin(entries[rowOf(entries, position)]);
    } else return;
    consume(event);
  };
  /** Clear the hover, unless the pointer goes on to another word. */
  const leave = ({ relatedTarget }: PointerEvent) => {
    const isWord = relatedTarget instanceof Element && relatedTarget.closest(".word") !== null;
    if (isWord) explorer.hideTip();
    else explorer.clearHover();
  };
  const atTab = Math.max(0, rowOf(entries, pinned));
  const isShown = (i: number) => {
    const y = rowY(columns, i);
    return (y >= top && y <= bottom) || i === atTab;
  };
  return (
    <div
      class={`words ${axis}`}
      role="listbox"
      aria-label={isReaders ? "Words that read" : "Words that are read"}
      aria-multiselectable="false"
      onKeyDown={move}
    >
      {entries.map((entry, i) => {
        if (!isShown(i)) return null;
        const weight = numberOf(i);
        const y = rowY(columns, i) - columns.rowHeight / 2;
        const isPinned = pinned !== null && entry.positions.includes(pinned);
        const isSpecial = entry.special && selection.filter.specials === "dimmed";
        const ground = isOverlay ? null : groundOf(session, side, weight && weight * scale);
        const place = isReaders
          ? { right: columns.width - columns.labels.left }
          : { left: columns.labels.right };
        return (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the list has the keys
          <div
            key={entry.positions[0]}
            role="option"
            data-position={entry.positions[0]}
            class={classes(
              "word",
              isSpecial && "sp",
              entry.generated && "written",
              isPinned && "pin",
              i === focused && !isPinned && "over",
            )}
            aria-selected={isPinned}
            aria-setsize={entries.length}
            aria-posinset={i + 1}
            tabIndex={i === atTab ? 0 : -1}
            style={px({ top: y, height: columns.rowHeight, fontSize: columns.fontSize, ...place })}
            onPointerEnter={(event) => {
              if (event.pointerType !== "mouse") return;
              session.point({ [axis]: entry.positions[0] });
            }}
            onPointerMove={(event) => {
              if (event.pointerType === "mouse" && matrix) note(event, entry);
            }}
            onPointerLeave={leave}
            onFocus={() => session.point({ [axis]: entry.positions[0] })}
            onBlur={() => session.point({})}
            onClick={() => pin(entry)}
          >
            {hasPieces && (
              <PatchThumbnail
                piece={pieceOf(tokens.pieces, entry.positions)}
                media={side.now.media}
              />
            )}
            <bdi style={ground ? { background: cssOf(ground), color: inkOn(ground) } : {}}>
              {printed(entry.label)}
            </bdi>
            {isOverlay && reading ? (
              <StackedShare columns={columns} heads={drawn} index={i} />
            ) : (
              weight !== null && (
                <Share
                  columns={columns}
                  axis={axis}
                  weight={weight}
                  scale={scale}
                  color={cssOf(color)}
                />
              )
            )}
          </div>
        );
      })}
    </div>
  );

  /** Show the exact weights of the word under the pointer. */
  function note(event: PointerEvent, entry: Entry): void {
    const index = entries.indexOf(entry);
    const reading = isReaders ? session.row(side, index) : null;
    const values = reading ? reading.weights : columnWeights(matrix!, index);
    const others = isReaders ? filtered.columns : filtered.rows;
    const order = Array.from(values.keys()).sort((a, b) => (values[b] || 0) - (values[a] || 0));
    const precision = reading?.precision ?? (side.block.isFine ? "fine" : "coarse");
    explorer.showTip(
      event,
      `${printed(entry.label)} · ${axis} ${entry.positions[0]}`,
      order
        .slice(0, 5)
        .map((i) => [
          `${isReaders ? "→" : "←"} ${printed(others[i].label)} (${others[i].positions[0]})`,
          formatWeight(values[i], precision),
        ]),
    );
  }
}

interface ShareProps {
  readonly columns: Columns;
  readonly axis: "query" | "key";
  readonly weight: number;
  readonly scale: number;
  readonly color: string;
}

interface StackedProps {
  readonly columns: Columns;
  readonly heads: ReturnType<typeof drawnHeads>;
  readonly index: number;
}

/** Weights of several heads on one word, one bar after another; on phones the largest one. */
function StackedShare({ columns, heads, index }: StackedProps) {
  const parts = heads.map(({ read, color }) => ({ weight: read?.[index] ?? 0, color }));
  const shown = parts.filter(({ weight }) => weight >= 0.02);
  if (shown.length === 0) return null;
  const bar = columns.numbers.bar;
  const most = shown.reduce((a, b) => (b.weight > a.weight ? b : a));
  return (
    <span class="share num" style={px({ left: columns.numbers.x - columns.labels.right })}>
      {bar === 0 && <b>{"abcdef"[parts.indexOf(most)]} </b>}
      {bar > 0 && (
        <span class="stack">
          {parts.map(({ weight, color }, i) =>
            weight >= 0.02 ? (
              <i
                key={i}
                style={{ width: `${(bar * weight) / heads.length}px`, background: cssOf(color) }}
              />
            ) : null,
          )}
        </span>
      )}
      {(bar > 0 ? shown : [most]).map(({ weight }) => shortWeight(weight)).join(" + ")}
    </span>
  );
}

function Share({ columns, axis, weight, scale, color }: ShareProps) {
  if (Number.isNaN(weight)) return <span class="share">missing</span>;
  if (weight * scale < 0.005) return null;
  const isKey = axis === "key";
  const x = isKey
    ? { left: columns.numbers.x - columns.labels.right }
    : { right: columns.labels.left - columns.readers + 2 };
  const bar = isKey ? columns.numbers.bar : 0;
  const width = `${Math.max(1.5, bar * Math.min(1, weight * scale))}px`;
  return (
    <span class="share num" style={px(x)}>
      {bar > 0 && <i style={{ width, background: color }} />}
      {scale > 1 ? formatNumber(weight) : shortWeight(weight)}
    </span>
  );
}

/** Rows of one word in two inputs, bars to the left and to the right of the words. */
function Butterfly() {
  const session = useSession();
  const [a, b] = session.sides.value;
  const rows = [a, b].map((side) => session.row(side, session.focus(side).row)?.weights ?? null);
  const { ref, width, height } = useSize<HTMLDivElement>();
  const names = bothNames(a.filtered.columns, b.filtered.columns);
  const { key } = session.selection.value;
  const [one, other] = rows;
  if (!one || !other) {
    return (
      <div class="butterfly" ref={ref}>
        <p class="mut">Unpacking …</p>
      </div>
    );
  }
  const most = Math.max(0.01, ...one, ...other);
  const apart = names.map((_, i) => Math.abs((one[i] || 0) - (other[i] || 0)));
  const widest = Math.max(...apart);
  const total = apart.reduce((sum, value) => sum + value, 0) / 2;
  const rowHeight = Math.max(18, Math.min(30, (height - 96) / names.length));
  const bar = Math.max(40, width / 2 - 150);
  const strong = cssOf(headColor(session, session.lead.value));
  const label = ({ filtered }: Side, row: number) => printed(filtered.rows[row]?.label ?? "");
  const cell = (value: number, i: number, isLarger: boolean, tone: string) => {
    const isStrong = isLarger && widest > 0 && apart[i] >= widest / 2;
    const background = isStrong ? strong : tone;
    return (
      <>
        <i style={{ width: `${(bar * (value || 0)) / most}px`, background }} />
        {value >= 0.02 && <span class="num">{shortWeight(value)}</span>}
      </>
    );
  };
  const { tone } = session.theme.value;
  const pin = (at: number) => session.update({ key: key === at ? null : at });
  return (
    <div class="butterfly" ref={ref}>
      {width > 0 && (
        <table aria-label="What the word reads in A and in B">
          <thead>
            <tr>
              <th scope="col" class="left">
                A “{label(a, session.focus(a).row)}” reads
              </th>
              <th scope="col">word</th>
              <th scope="col">B “{label(b, session.focus(b).row)}” reads</th>
            </tr>
          </thead>
          <tbody>
            {names.map((entry, i) => (
              <tr key={entry.positions[0]} style={px({ height: rowHeight })}>
                <td class="left">{cell(one[i], i, one[i] >= other[i], tone.aedge)}</td>
                <th
                  scope="row"
                  class={classes(entry.special && "sp", entry.label.includes("/") && "differs")}
                >
                  <Button
                    class="plain-word"
                    aria-pressed={key !== null && entry.positions.includes(key)}
                    onClick={() => pin(entry.positions[0])}
                  >
                    {printed(entry.label)}
                  </Button>
                </th>
                <td>{cell(other[i], i, other[i] > one[i], tone.bedge)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <p class="mut">
        Strong color: the larger side, where the two differ by at least half of the largest
        difference ({shortWeight(widest)}). The rows differ by {shortWeight(total)} in all.
      </p>
    </div>
  );
}

const SIDE = 28;

/** Patch of a picture, as small as a word. */
function PatchThumbnail({ piece, media }: { piece: Piece | null; media: Media }) {
  const ref = useRef<HTMLCanvasElement>(null);
  const patch = piece?.kind === "patch" ? piece : null;
  const picture = patch ? media.pictures[patch.image] : undefined;
  useLayoutEffect(() => {
    const context = ref.current?.getContext("2d");
    if (!context || !patch || !picture) return;
    const { width, height, pixels } = picture;
    const { left, top, right, bottom } = patch;
    const [w, h] = [(right - left) * width, (bottom - top) * height];
    const whole = canvasOf({ columns: width, rows: height, pixels });
    context.drawImage(whole, left * width, top * height, w, h, 0, 0, SIDE, SIDE);
  }, [patch, picture]);
  if (!picture) return null;
  return <canvas class="thumbnail" width={SIDE} height={SIDE} ref={ref} />;
}
