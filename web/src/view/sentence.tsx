// The text on top, with attention of the chosen word as arcs, and predictions.

import { Fragment } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { columnWeights } from "../data/filtered_block.ts";
import { shortWeight } from "../data/format.ts";
import { summary } from "../data/head_summary.ts";
import { inText, joinedTokens, printed, rowOf } from "../data/tokens.ts";
import type { Tokens } from "../data/trace.ts";
import { type Arc, arcsOf, type Place } from "../layout/arcs_layout.ts";
import { widestEms } from "../paint/painter.ts";
import { inkOn } from "../paint/roles.ts";
import { cssOf, mix } from "../paint/theme.ts";
import type { Session, Side } from "../state/session.ts";
import { Button, classes, consume, Segments, Where } from "./controls.tsx";
import { useExplorer, useSession } from "./explorer_context.ts";
import { Predictions } from "./predictions.tsx";
import { headColor } from "./selected_head.ts";

/** Maximum lines of a text; a longer one is one line that scrolls. */
const LINES = { wide: 2, middle: 2, phone: 4 } as const;
/** Pixels around a word, and beside the text for predictions. */
const SPACE = 9;
const PREDICTED = 250;

function wouldFit(session: Session, { block, now }: Side, isTwo: boolean): boolean {
  const { width, height } = session.size.value;
  const layout = session.layout.value;
  const [isLow, isPhone] = [height <= 560, layout === "phone"];
  const size = isPhone ? 21 : isLow ? 18 : isTwo ? 23 : 27;
  const { texts } = block.queryTokens;
  const length = widestEms([texts.map(printed).join("")], true) * size + texts.length * SPACE;
  const beside = now.predictions ? PREDICTED : 40;
  const room = isPhone ? width - 30 : width / (isTwo && layout === "wide" ? 2 : 1) - beside;
  return length <= room * (isLow ? 1 : LINES[layout]);
}

export function Sentence() {
  const session = useSession();
  const shown = session.shown.value;
  const isTwo = session.sides.value.length > 1;
  return (
    <section class={`stage ${isTwo ? "two" : "one"}`} aria-label="The text">
      <div class="flows">
        {shown.map((side) => (
          <Flow key={side.trace} side={side} />
        ))}
      </div>
      <Caption />
    </section>
  );
}

interface Word {
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
  const { row, column } = session.focus(side);
  const { word } = session.selection.value;
  const { block, filtered } = side;
  const pinned = session.place(side, word, "query");
  const bands = useMemo(() => bandsOf(side), [side]);
  const color = headColor(session, side);
  const matrix = session.matrix(side);
  const isCross = block.queryTokens !== block.keyTokens;
  const read = row >= 0 ? (session.row(side, row)?.weights ?? null) : null;
  const isLong = !wouldFit(session, side, session.sides.value.length > 1);
  const ref = useRef<HTMLDivElement>(null);
  const [places, setPlaces] = useState<ReadonlyMap<string, Place>>(new Map());
  const { width } = session.size.value;
  const measure = () => {
    const box = ref.current;
    if (!box) return;
    const measured = new Map<string, Place>();
    for (const element of box.querySelectorAll<HTMLElement>("[data-at]")) {
      const { offsetLeft, offsetTop, offsetWidth } = element;
      measured.set(element.dataset.at!, {
        x: offsetLeft + offsetWidth / 2,
        y: offsetTop,
        width: offsetWidth,
      });
    }
    setPlaces(measured);
  };
  const { embed } = session.selection.value;
  useLayoutEffect(measure, [bands, width, isLong, session.layout.value, embed]);
  useLayoutEffect(() => {
    const box = ref.current?.closest<HTMLElement>(".scrolled");
    const word = box?.querySelector<HTMLElement>(".tok.pin");
    if (isLong && box && word) box.scrollLeft = word.offsetLeft - box.clientWidth * 0.6;
  }, [pinned, isLong, width]);
  useLayoutEffect(() => {
    void document.fonts?.ready.then(measure);
  }, []);
  const weightAt = (axis: "query" | "key", position: number): number => {
    if (read && (axis === "key" || !isCross)) {
      return read[rowOf(filtered.columns, position)] ?? 0;
    }
    if (row < 0 && column >= 0 && matrix && (axis === "query" || !isCross)) {
      const index = rowOf(filtered.rows, position);
      return index < 0 ? 0 : matrix.weights[index * matrix.columns + column];
    }
    return 0;
  };
  const arcs: Arc[] = matrix
    ? arcsOf({ matrix, filtered, focus: { row, column }, read, above, isCross }, places)
    : [];
  const first = Math.min(...[...places.values()].map(({ y }) => y));
  const dashed = session.edits.isOff(session.selection.value);
  const act = (w: Word) => {
    const field = w.axis === "query" ? "word" : "key";
    const now = session.selection.value[field];
    session.point({});
    session.update({ [field]: now === w.position ? null : w.position });
    if (session.layout.peek() === "phone") explorer.open.value = now === w.position ? "" : "word";
  };
  const keyDown = (event: KeyboardEvent, w: Word) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (event.key === "Enter" || event.key === " ") act(w);
    else if (step) {
      const all = [...ref.current!.querySelectorAll<HTMLElement>("[data-at]")];
      all[all.indexOf(event.currentTarget as HTMLElement) + step]?.focus();
    } else return;
    consume(event);
  };
  const reachable = pinned ?? firstOf(bands);
  const hover = (w: Word | null) => session.point(w ? { [w.axis]: w.position } : {});
  return (
    <div class={`flow ${isLong ? "long" : ""}`}>
      <div class="scrolled">
        <div class="toks" ref={ref}>
          {bands.map((band, i) => (
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
                const weight = weightAt(w.axis, w.position);
                const isPin = w.axis === "query" && w.position === pinned;
                const isRow = w.axis === "query" && row >= 0 &&
                  filtered.rows[row].positions.includes(w.position); // biome-ignore format: one claim
                const shade = weight >= Math.max(above, 0.005) ? weight ** 0.7 : 0;
                const ground = mix(theme.rgb.paper, color, 0.08 + 0.55 * shade);
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
                    </span>
                  </Fragment>
                );
              })}
            </span>
          ))}
          <svg class="arcs" aria-hidden="true">
            {arcs.map((arc) => (
              <path
                key={`${arc.from}-${arc.to}`}
                d={arc.path}
                stroke={cssOf(color)}
                stroke-width={arc.width}
                stroke-opacity={arc.opacity}
                stroke-dasharray={dashed ? "6 4" : undefined}
                fill="none"
              />
            ))}
            {arcs
              .filter((arc) => arc.label !== "")
              .map((arc) => (
                <text key={arc.to} x={arc.labelX} y={first - 5} text-anchor={arc.anchor}>
                  {arc.label}
                </text>
              ))}
          </svg>
        </div>
      </div>
      <Predictions side={side} />
    </div>
  );
}

function firstOf(bands: readonly Band[]): number {
  return (bands.find((band) => !band.special) ?? bands[0])?.words[0].position ?? 0;
}

/** Attention of the word in focus, as words and numbers. */
function Caption() {
  const explorer = useExplorer();
  const { session } = explorer;
  const sides = session.shown.value;
  const { side: chosen, filter, embed, word, key } = session.selection.value;
  const all = session.sides.value;
  const [first, second] = all.map(({ block }) => block.queryTokens.texts);
  const apart = second ? first.findIndex((text, i) => text !== second[i]) : -1;
  return (
    <div class="cap">
      {explorer.lab && !embed && (
        <Button class="b" onClick={() => explorer.lab?.editText()}>
          ✎ Text and examples
        </Button>
      )}
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
        {word === null || key !== null
          ? "hover a word, click to pin it"
          : "click what it reads, at the right, to rank heads by it"}{" "}
        · <kbd>←↑↓→</kbd> other heads
      </span>
    </div>
  );
}

function Reading({ side, above }: { side: Side; above: number }) {
  const session = useSession();
  const { row, column } = session.focus(side);
  const { filtered } = side;
  const isPhone = session.layout.value === "phone";
  const isReader = row >= 0;
  const matrix = session.matrix(side);
  if ((!isReader && column < 0) || !matrix) {
    const text = matrix
      ? `Each word's strongest link is drawn. ${isPhone ? "Tap" : "Hover"} a word to see all that it reads.`
      : "Unpacking …";
    return side === session.shown.value[0] ? <span class="mut">{text}</span> : null;
  }
  const weights = isReader ? session.row(side, row)!.weights : columnWeights(matrix, column);
  const entries = isReader ? filtered.columns : filtered.rows;
  const entry = isReader ? filtered.rows[row] : filtered.columns[column];
  const { top, others, rest } = summary(weights, 3, Math.max(above, 0.01));
  return (
    <span class="reading">
      {side.letter && <b class="letter">{side.letter}</b>}
      <em>{printed(entry.label)}</em> {isReader ? "reads from" : "is read by"}{" "}
      {top.length === 0 && `no word above ${Math.max(above, 0.01)}`}
      {top.map(({ index, weight }, i) => (
        <span key={index}>
          {i > 0 && " · "}
          <em>{printed(entries[index].label)}</em>
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
