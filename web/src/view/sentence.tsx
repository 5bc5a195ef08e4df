// The text on top, with attention of the chosen word as arcs, and the predicted word at its end.

import { Fragment } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { columnWeights, type Matrix } from "../data/filtered_block.ts";
import { shortWeight } from "../data/format.ts";
import { scaleOf, summary } from "../data/head_summary.ts";
import { inText, joinedTokens, named, printed, rowOf, unitOf } from "../data/tokens.ts";
import type { Tokens } from "../data/trace.ts";
import { type Arc, arcsOf, CROWDED, type Place } from "../layout/arcs_layout.ts";
import { shorten } from "../layout/matrix_layout.ts";
import { widestEms } from "../paint/painter.ts";
import { inkOn } from "../paint/roles.ts";
import { cssOf, mix } from "../paint/theme.ts";
import { headName } from "../state/selection.ts";
import type { Session, Side } from "../state/session.ts";
import { Button, classes, consume, pointing, Segments, Select, Where } from "./controls.tsx";
import { useExplorer, useSession } from "./explorer_context.ts";
import { DensityStrip, EdgeChips } from "./long_text.tsx";
import { beforeAfter, Ghost, Question } from "./predictions.tsx";
import { drawnHeads } from "./selected_head.ts";
import { StepScrubber } from "./step_scrubber.tsx";

/** Maximum lines of a text; of a longer one, a part is shown over a strip of the whole. */
const LINES = { wide: 2, middle: 2, phone: 4 } as const;
/** Pixels around a word, and around the predicted word. */
const SPACE = 9;
const PREDICTED = 96;

function fontOf(session: Session, isTwo: boolean): number {
  const { height } = session.size.value;
  const isPhone = session.layout.value === "phone";
  return isPhone ? 21 : height <= 560 ? 20 : isTwo ? 22 : 27;
}

function wouldFit(session: Session, { block, now }: Side, isTwo: boolean): boolean {
  const { width, height } = session.size.value;
  const layout = session.layout.value;
  const [isLow, isPhone] = [height <= 560, layout === "phone"];
  const { texts } = block.queryTokens;
  const size = fontOf(session, isTwo);
  const length = widestEms([texts.map(printed).join("")], true) * size + texts.length * SPACE;
  const answer = now.predictions?.positions.at(-1)?.top[0]?.text;
  const beside = answer === undefined ? 40 : widestEms([answer], true) * size + PREDICTED;
  const room = isPhone ? width - 30 : width - beside;
  return length <= room * (isPhone ? LINES.phone : isLow || isTwo ? 1 : LINES[layout]);
}

export function Sentence() {
  const explorer = useExplorer();
  const { session } = explorer;
  const shown = session.shown.value;
  const isTwo = session.sides.value.length > 1;
  const { embed } = session.selection.value;
  return (
    <section class={`stage ${isTwo ? "two" : "one"}`} aria-label="The text">
      {!embed && (
        <div class="ask">
          <h2 class="question">
            <Question />
          </h2>
          <span class="gap" />
          {session.header.steps ? <StepScrubber steps={session.header.steps} /> : <Examples />}
        </div>
      )}
      <div class="flows">
        {shown.map((side) =>
          explorer.typing.value ? (
            <Typed key={side.trace} side={side} />
          ) : (
            <Flow key={side.trace} side={side} />
          ),
        )}
      </div>
      <Caption />
    </section>
  );
}

/** Maximum examples that stand beside one another; more are a list in the bar. */
export const MAX_CHIPS = 4;

/** Other texts: those of the file, or those of the lab; and the sentence as a text field. */
function Examples() {
  const explorer = useExplorer();
  const { session, lab } = explorer;
  const { examples } = session.header;
  const { example } = session.selection.value;
  const isPhone = session.layout.value === "phone";
  const offered = lab?.examples ?? [];
  // Two texts that are compared, or read together, are typed in the dialog.
  const { segments } = session.lead.value.block.queryTokens;
  const isTypable = session.sides.value.length === 1 && new Set(segments).size === 1;
  const isShort = examples.length > 1 && examples.length <= MAX_CHIPS && !isPhone;
  return (
    <span class="examples">
      {lab && session.can.trace && (
        <>
          {isTypable && (
            <Button
              class="b"
              onClick={() => {
                explorer.typing.value = true;
              }}
            >
              ✎ Type in the sentence
            </Button>
          )}
          {lab.editText && (
            <Button class="b" onClick={() => lab.editText?.()}>
              {session.header.live ? "Compare two …" : "Models and pairs …"}
            </Button>
          )}
          {lab.readOne && session.sides.value.length > 1 && (
            <Button class="b" onClick={() => lab.readOne?.()}>
              Back to one text
            </Button>
          )}
          {offered.length > 0 && !isPhone && (
            <Select
              kind="b"
              label="Examples"
              value=""
              options={[
                ["", "or try …"],
                ...offered.map((title, i) => [String(i), title] as const),
              ]}
              choose={(value) => value && lab.openExample?.(Number(value))}
            />
          )}
        </>
      )}
      {isShort && (
        <Segments
          label="Example"
          kind="chips-row"
          value={example}
          options={examples.map(({ title }, i) => [i, shorten(title, 22), title])}
          choose={(value) => session.update({ example: value })}
        />
      )}
    </span>
  );
}

/** The sentence as a text field: Enter reads it, Escape leaves it. */
function Typed({ side }: { side: Side }) {
  const explorer = useExplorer();
  const ref = useRef<HTMLInputElement>(null);
  const text = side.base.title;
  useLayoutEffect(() => {
    ref.current?.focus();
    ref.current?.select();
  }, []);
  const stop = () => {
    explorer.typing.value = false;
  };
  return (
    <div class="flow typed">
      <input
        ref={ref}
        dir="auto"
        spellcheck={false}
        aria-label="The sentence: Enter reads it"
        defaultValue={text}
        onKeyDown={(event) => {
          event.stopPropagation();
          const typed = event.currentTarget.value.trim();
          if (event.key === "Escape") stop();
          if (event.key !== "Enter" || !typed) return;
          stop();
          if (typed !== text) explorer.lab?.read(event.currentTarget.value);
        }}
        onBlur={stop}
      />
    </div>
  );
}

export interface Word {
  readonly position: number;
  readonly text: string;
  readonly special: boolean;
  readonly generated: boolean;
  readonly joined: boolean;
  readonly axis: "query" | "key";
}

interface Band {
  readonly letter: string;
  readonly name: string;
  readonly words: Word[];
  readonly special: boolean;
  readonly segment: number;
}

/** Group the tokens of a side into bands: texts A and B, special tokens between. */
function bandsOf(side: Side): Band[] {
  const { block } = side;
  const isCross = block.queryTokens !== block.keyTokens;
  const bands: Band[] = isCross ? bandsOfTokens(block.keyTokens, "key", "", "is read") : [];
  const tokens = block.queryTokens;
  const several = new Set(tokens.segments).size > 1;
  const letter = several ? null : side.letter;
  return [...bands, ...bandsOfTokens(tokens, "query", letter, isCross ? "reads" : "")];
}

function bandsOfTokens(
  tokens: Tokens,
  axis: "query" | "key",
  letter: string | null,
  name: string,
): Band[] {
  const bands: Band[] = [];
  const joined = joinedTokens(tokens.texts, tokens.words);
  tokens.texts.forEach((text, position) => {
    if (tokens.pieces[position] !== null) return;
    const special = tokens.special[position];
    const segment = tokens.segments[position];
    const last = bands.at(-1);
    const word: Word = {
      position,
      text: inText(printed(text)),
      special,
      generated: tokens.generated[position],
      joined: joined[position] && !tokens.special[position - 1],
      axis,
    };
    if (last && last.special === special && last.segment === segment) last.words.push(word);
    else {
      const mark = special ? "" : (letter ?? "AB"[segment] ?? "");
      bands.push({ letter: mark, name, words: [word], special, segment });
    }
  });
  return bands;
}

function Flow({ side }: { side: Side }) {
  const session = useSession();
  const explorer = useExplorer();
  const theme = session.theme.value;
  const { above } = session.selection.value.filter;
  const focus = session.focus(side);
  const { row, column } = focus;
  const { word } = session.selection.value;
  const { block, filtered } = side;
  const pinned = session.place(side, word, "query");
  const bands = useMemo(() => bandsOf(side), [side]);
  const isLong = bands.length > 0 && !wouldFit(session, side, session.sides.value.length > 1);
  const drawn = drawnHeads(session, side);
  const { color, matrix, read } = drawn[0];
  const isCross = block.queryTokens !== block.keyTokens;
  const ref = useRef<HTMLDivElement>(null);
  const [places, setPlaces] = useState<ReadonlyMap<string, Place>>(new Map());
  const { width } = session.size.value;
  const all = useMemo(() => bands.flatMap((band) => band.words), [bands]);
  const [start, setStart] = useState(0);
  const [room, setRoom] = useState(width);
  const shownCount = useMemo(
    () => (isLong ? countFrom(all, start, room) : all.length),
    [isLong, all, start, room],
  );
  const visible = useMemo(
    () => (isLong ? cut(bands, start, start + shownCount) : bands),
    [bands, isLong, start, shownCount],
  );
  const measure = () => {
    const box = ref.current;
    if (!box) return;
    // The answer, which stands beside a long text, leaves less than the width of the window.
    setRoom(box.parentElement!.clientWidth - (session.layout.peek() === "phone" ? 16 : 50));
    const words = [...box.querySelectorAll<HTMLElement>("[data-at]")].map((word) => {
      const { offsetLeft, offsetTop: y, offsetWidth: width } = word;
      return [word.dataset.at!, { x: offsetLeft + width / 2, y, width }] as const;
    });
    setPlaces(new Map(words));
  };
  const { embed, answers, edits } = session.selection.value;
  const laid = [visible, width, isLong, embed, answers, edits, drawn.length, session.layout.value];
  useLayoutEffect(measure, laid);
  // The pinned word opens in the right half, so that what it reads is beside it.
  useLayoutEffect(() => {
    if (!isLong) return;
    const index = all.findIndex((w) => w.axis === "query" && w.position === pinned);
    const last = all.length - countFrom([...all].reverse(), 0, room);
    setStart(Math.max(0, Math.min(index < 0 ? 0 : index - Math.round(shownCount * 0.6), last)));
  }, [pinned, isLong, all, room]);
  useLayoutEffect(() => {
    void document.fonts?.ready.then(measure);
  }, []);
  const weightOf = (values: Float32Array | null, of: Matrix | null, w: Word): number => {
    if (values && (w.axis === "key" || !isCross)) {
      return values[rowOf(filtered.columns, w.position)] ?? 0;
    }
    if (row < 0 && column >= 0 && of && (w.axis === "query" || !isCross)) {
      const index = rowOf(filtered.rows, w.position);
      return index < 0 ? 0 : of.weights[index * of.columns + column];
    }
    return 0;
  };
  const scale = read ? scaleOf(read) : 1;
  const arcs = drawn.flatMap(({ matrix, read, color }, head) =>
    matrix
      ? arcsOf(
          { matrix, filtered, focus, read, above, isCross, scale, shift: 4 * head },
          places,
        ).map((arc: Arc) => ({ ...arc, head, color }))
      : [],
  );
  const first = Math.min(...[...places.values()].map(({ y }) => y));
  const dashed = session.edits.isOff(session.selection.value);
  const act = (w: Word) => {
    const field = w.axis === "query" ? "word" : "key";
    const now = session.selection.value[field];
    session.point({});
    session.update({ [field]: now === w.position ? null : w.position, answers: false });
    if (session.layout.peek() === "phone") explorer.open.value = now === w.position ? "" : "word";
  };
  const keyDown = (event: KeyboardEvent, w: Word) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (event.key === "Enter" || event.key === " ") act(w);
    else if (step) {
      const shown = [...ref.current!.querySelectorAll<HTMLElement>("[data-at]")];
      const next = shown[shown.indexOf(event.currentTarget as HTMLElement) + step];
      if (next) next.focus();
      else if (isLong) setStart(Math.max(0, Math.min(all.length - 4, start + step * 10)));
    } else return;
    consume(event);
  };
  const reachable = visible.flatMap((band) => band.words).some((w) => w.position === pinned)
    ? pinned
    : firstOf(visible);
  const hover = (w: Word | null) => session.point(w ? { [w.axis]: w.position } : {});
  const others = useMemo(() => differing(session.sides.value), [session.sides.value]);
  const isWriter = beforeAfter(session, side)?.before.isLast ?? false;
  const strip = { side, all, start, count: shownCount, show: setStart, read };
  return (
    <div class={`flow ${isLong ? "long" : ""}`}>
      {isLong && <EdgeChips {...strip} />}
      <div class="scrolled">
        <div
          class={classes("toks", drawn.length > 1 && "several")}
          ref={ref}
          onWheel={(event) => {
            if (!isLong) return;
            const step = Math.sign(event.deltaY || event.deltaX) * 4;
            setStart(Math.max(0, Math.min(all.length - 4, start + step)));
            event.preventDefault();
          }}
        >
          {visible.map((band, i) => (
            <span
              key={`${i}/${band.words[0].position}`}
              class={band.special ? "marks" : `band ${band.letter.toLowerCase()}`}
              dir="auto"
            >
              {/* With `dir`, names do not decide the direction of the text. */}
              {[band.letter, band.special ? "" : band.name].filter(Boolean).map((name) => (
                <b class="letter" dir="ltr" key={name}>
                  {name}
                </b>
              ))}
              {band.words.map((w, j) => {
                const weight = drawn.length > 1 ? 0 : weightOf(read, matrix, w);
                const isPin = w.axis === "query" && w.position === pinned;
                const isRow = w.axis === "query" && row >= 0 &&
                  filtered.rows[row].positions.includes(w.position); // biome-ignore format: one claim
                const shade = weight >= Math.max(above, 0.005) ? (weight * scale) ** 0.7 : 0;
                const ground = mix(theme.rgb.paper, color, 0.08 + 0.55 * Math.min(1, shade));
                const style =
                  shade && !isPin ? { background: cssOf(ground), color: inkOn(ground) } : {};
                return (
                  <Fragment key={`${w.axis}${w.position}`}>
                    {/* Lines may break at this point, and Arabic letters do not join across words. */}
                    {!w.joined && "\u200c"}
                    {!w.joined && <wbr />}
                    {/* A span, so that letters of a word in several tokens join. */}
                    <span
                      role="button"
                      data-at={`${w.axis}${w.position}`}
                      class={classes(
                        "tok",
                        w.special && "sp",
                        w.joined && "joined",
                        band.words[j + 1]?.joined && "joins",
                        w.generated && "written",
                        isPin && "pin",
                        isRow && !isPin && "over",
                        w.axis === "query" && others.has(w.position) && "differs",
                      )}
                      style={style}
                      aria-pressed={isPin}
                      tabIndex={w.axis === "query" && w.position === reachable ? 0 : -1}
                      onPointerEnter={(event) => event.pointerType === "mouse" && hover(w)}
                      onPointerLeave={() => hover(null)}
                      onFocus={() => hover(w)}
                      onBlur={() => hover(null)}
                      onClick={() => act(w)}
                      onKeyDown={(event) => keyDown(event, w)}
                    >
                      {w.text}
                      {drawn.length > 1 && (
                        <span class="minis" aria-hidden="true">
                          {drawn.map(({ color, read, matrix }, n) => {
                            const part = weightOf(read, matrix, w);
                            const height = part >= 0.02 ? 2 + 9 * part : 0;
                            const look = { height: `${height}px`, background: cssOf(color) };
                            return <i key={n} style={look} />;
                          })}
                        </span>
                      )}
                    </span>
                  </Fragment>
                );
              })}
            </span>
          ))}
          {isWriter && !isLong && <Ghost side={side} />}
          <svg class="arcs" aria-hidden="true">
            {arcs.map((arc) => (
              <path
                key={`${arc.head}/${arc.from}-${arc.to}`}
                d={arc.path}
                stroke={cssOf(arc.color)}
                stroke-width={arc.width}
                stroke-opacity={arc.opacity}
                stroke-dasharray={dashed ? "6 4" : undefined}
                fill="none"
              />
            ))}
            {arcs
              .filter((arc) => arc.label !== "")
              .map((arc) => (
                <text
                  key={`${arc.head}/${arc.to}`}
                  x={arc.labelX}
                  y={first - 5}
                  text-anchor={arc.anchor}
                >
                  {arc.label}
                </text>
              ))}
          </svg>
        </div>
      </div>
      {isWriter && isLong && <Ghost side={side} />}
      {isLong && <DensityStrip {...strip} />}
    </div>
  );
}

/** Positions at which two texts of equal length have different words. */
function differing(sides: readonly Side[]): ReadonlySet<number> {
  const [a, b] = sides.map(({ block }) => block.queryTokens.texts);
  if (!b || a.length !== b.length) return new Set();
  return new Set(a.flatMap((text, i) => (text === b[i] ? [] : i)));
}

/** Number of words from `start` that fit into a line. */
function countFrom(words: readonly Word[], start: number, room: number): number {
  let [used, count] = [0, 0];
  while (start + count < words.length) {
    const w = words[start + count];
    used += widestEms([w.text], true) * (w.special ? 12 : 20) + (w.joined ? 0 : SPACE);
    if (used > room && count > 0) break;
    count++;
  }
  return Math.max(1, count);
}

/** Bands of the words from one index to another. */
function cut(bands: readonly Band[], from: number, to: number): Band[] {
  const kept: Band[] = [];
  let index = 0;
  for (const band of bands) {
    const words = band.words.slice(Math.max(0, from - index), Math.max(0, to - index));
    if (words.length > 0) kept.push({ ...band, words });
    index += band.words.length;
  }
  return kept;
}

function firstOf(bands: readonly Band[]): number {
  return (bands.find((band) => !band.special) ?? bands[0])?.words[0].position ?? 0;
}

/** Attention of the word in focus, as words and numbers. */
function Caption() {
  const explorer = useExplorer();
  const { session } = explorer;
  const sides = session.shown.value;
  const { side: chosen, filter, word } = session.selection.value;
  const all = session.sides.value;
  const [first, second] = all.map(({ block }) => block.queryTokens.texts);
  const unit = unitOf(all[0].block.queryTokens) ?? "word";
  const apart = second ? first.findIndex((text, i) => text !== second[i]) : -1;
  return (
    <div class="cap">
      {all.length > 1 && sides.length === 1 && (
        <Segments
          label="Input"
          value={chosen}
          options={all.map(({ letter, base, block }, i) => {
            const text = printed(block.queryTokens.texts[apart] ?? "");
            const what = base.changed ?? (apart >= 0 ? text : "");
            return [i, what ? `${letter} · ${what}` : letter];
          })}
          choose={(side) => session.update({ side })}
        />
      )}
      <p class="say" aria-live="polite">
        {sides.map((side) => (
          <Reading key={side.trace} side={side} above={filter.above} />
        ))}
      </p>
      <span class="gap" />
      <span class="mut hint">
        {word === null
          ? `click a ${unit} to pin it`
          : `click another ${unit}: everything follows it`}{" "}
        · <kbd>←↑↓→</kbd> other heads
      </span>
    </div>
  );
}

/** What each of several heads reads for the word in focus. */
function Readings({ side, row }: { side: Side; row: number }) {
  const session = useSession();
  const { columns } = side.filtered;
  return (
    <>
      {drawnHeads(session, side).map(({ id, color, read }) => (
        <span class="reading" key={headName(id)}>
          <b class="badge small" style={{ background: cssOf(color), color: inkOn(color) }}>
            {headName(id)}
          </b>{" "}
          {row >= 0 &&
            read &&
            summary(read, 2, 0.01).top.map(({ index, weight }, i) => (
              <span key={index}>
                {i > 0 && " · "}
                <em>{named(columns[index])}</em> {shortWeight(weight)}
              </span>
            ))}
        </span>
      ))}
    </>
  );
}

/** Said where the filter leaves nothing to draw, with a way out. */
export function Nothing({ above }: { above: number }) {
  const session = useSession();
  const { filter } = session.selection.value;
  return (
    <>
      nothing above {above}{" "}
      {filter.above > 0 && (
        <Button class="plain" onClick={() => session.update({ filter: { ...filter, above: 0 } })}>
          show all
        </Button>
      )}
    </>
  );
}

function Reading({ side, above }: { side: Side; above: number }) {
  const session = useSession();
  const { row, column } = session.focus(side);
  const { filtered } = side;
  const hasArcs = session.layout.value !== "phone" && filtered.rows.length <= CROWDED;
  const isReader = row >= 0;
  const matrix = session.matrix(side);
  const several = session.overlaid;
  if (several && isReader) return <Readings side={side} row={row} />;
  if ((!isReader && column < 0) || !matrix) {
    const text = matrix
      ? `${hasArcs ? "Each word's strongest link is drawn. " : ""}${pointing(session)} a ${unitOf(side.block.queryTokens) ?? "word"} to see all that it reads.`
      : "Unpacking …";
    return side === session.shown.value[0] ? <span class="mut">{text}</span> : null;
  }
  const weights = isReader ? session.row(side, row)!.weights : columnWeights(matrix, column);
  const entries = isReader ? filtered.columns : filtered.rows;
  const entry = isReader ? filtered.rows[row] : filtered.columns[column];
  const { top, others, rest } = summary(weights, 3, Math.max(above, 0.01));
  const [to, by] = entry.kind === "patch" ? ["looks at", "looked at"] : ["reads from", "read"];
  const verb = isReader ? to : `is ${by} by`;
  return (
    <span class="reading">
      {side.letter && <b class="letter">{side.letter}</b>}
      <em>{named(entry)}</em> {verb} {top.length === 0 && <Nothing above={Math.max(above, 0.01)} />}
      {top.map(({ index, weight }, i) => (
        <span key={index}>
          {i > 0 && " · "}
          <em>{named(entries[index])}</em>
          <Where entries={entries} index={index} /> {shortWeight(weight)}
        </span>
      ))}
      {isReader && others > 0 && rest >= 0.005 && (
        <span class="mut">
          {" "}
          · {others} other{others > 1 ? "s" : ""} {shortWeight(rest)}
          {others > 1 ? " together" : ""}
        </span>
      )}
    </span>
  );
}
