// Long texts: a strip of all tokens, and chips for what the word in focus reads out of view.

import { useMemo } from "preact/hooks";
import { columnWeights } from "../data/filtered_block.ts";
import { shortWeight } from "../data/format.ts";
import { type Mark, rect } from "../layout/scene.ts";
import { cssOf } from "../paint/theme.ts";
import type { Side } from "../state/session.ts";
import { Button, Drawing } from "./controls.tsx";
import { useSession, useSize } from "./explorer_context.ts";
import { headColor } from "./selected_head.ts";
import type { Word } from "./sentence.tsx";

interface StripProps {
  readonly side: Side;
  readonly all: readonly Word[];
  /** First word in view, and the number of words in view. */
  readonly start: number;
  readonly count: number;
  readonly read: Float32Array | null;
  show(start: number): void;
}

/** Weight of each word for the one in focus: read by it, or, with a column in focus, reading it. */
function useWeights({ side, all, read }: StripProps): Float32Array | null {
  const session = useSession();
  const { row, column } = session.focus(side);
  const matrix = session.matrix(side);
  const { filtered, block } = side;
  const isCross = block.queryTokens !== block.keyTokens;
  return useMemo(() => {
    const isReader = row >= 0;
    const values = isReader ? read : matrix && column >= 0 ? columnWeights(matrix, column) : null;
    if (!values) return null;
    const entries = isReader ? filtered.columns : filtered.rows;
    const axis = isReader && isCross ? "key" : "query";
    const places = new Map(entries.flatMap(({ positions }, i) => positions.map((p) => [p, i])));
    return Float32Array.from(all, (w) =>
      isCross && w.axis !== axis ? 0 : (values[places.get(w.position) ?? -1] ?? 0),
    );
  }, [all, read, matrix, row, column, filtered]);
}

const MAX_CHIPS = 3;
/** Share of the largest weight from which a word out of view has a chip. */
const MIN_CHIP = 0.15;

export function EdgeChips(props: StripProps) {
  const { side, all, start, count, show } = props;
  const session = useSession();
  const weights = useWeights(props);
  const pinned = session.place(side, session.selection.value.word, "query");
  const here = all.findIndex((w) => w.axis === "query" && w.position === pinned);
  const isOut = (index: number) => index < start || index >= start + count;
  const strong = useMemo(() => {
    let most = 0;
    weights?.forEach((weight, i) => {
      if (all[i].position > 0 && weight > most) most = weight;
    });
    return all
      .map((w, index) => ({ w, index, weight: weights?.[index] ?? 0 }))
      .filter(({ w, weight }) => w.position > 0 && weight > 0 && weight >= most * MIN_CHIP)
      .sort((one, other) => other.weight - one.weight);
  }, [all, weights]);
  const far = strong.filter(({ index }) => isOut(index)).slice(0, MAX_CHIPS);
  const middle = (index: number) => show(Math.max(0, index - Math.round(count / 2)));
  const chips = [
    ...(here >= 0 && isOut(here) ? [{ w: all[here], index: here, weight: -1 }] : []),
    ...far,
  ];
  const group = (isLeft: boolean) =>
    chips
      .filter(({ index }) => index < start === isLeft)
      .map(({ w, index, weight }) => (
        <Button
          class={weight < 0 ? "b edge-chip here" : "b edge-chip"}
          key={index}
          onClick={() => middle(index)}
        >
          {isLeft && "◂ "}
          <bdi>{w.text}</bdi> {weight < 0 ? "pinned" : <b>{shortWeight(weight)}</b>}
          {here >= 0 && weight >= 0 && (
            <span class="mut">
              {" "}
              {Math.abs(here - index)} {index < here ? "back" : "ahead"}
            </span>
          )}
          {!isLeft && " ▸"}
        </Button>
      ));
  return (
    <div class="edge-chips">
      {group(true)}
      <span class="gap" />
      {group(false)}
    </div>
  );
}

const HEIGHTS = { usual: 40, low: 22 } as const;

/** All tokens as a strip: height is the weight, the frame is what is in view. */
export function DensityStrip(props: StripProps) {
  const { side, all, start, count, show } = props;
  const session = useSession();
  const theme = session.theme.value;
  const isLow = session.size.value.height <= 560;
  const tall = isLow ? HEIGHTS.low : HEIGHTS.usual;
  const weights = useWeights(props);
  const { ref, width } = useSize<HTMLDivElement>(false);
  const pinned = session.place(side, session.selection.value.word, "query");
  const color = cssOf(headColor(session, side));
  const { bars, most, first } = useMemo(() => {
    const columns = Math.max(1, Math.min(all.length, Math.floor(width)));
    const tops = new Float32Array(columns);
    let [most, first] = [0, 0];
    weights?.forEach((weight, i) => {
      if (all[i].position === 0) first = weight;
      else if (weight > most) most = weight;
      const at = Math.floor((i * columns) / all.length);
      if (weight > tops[at]) tops[at] = weight;
    });
    const marks: Mark[] = [];
    tops.forEach((top, i) => {
      const height = (tall - 4) * Math.min(1, most > 0 ? top / most : 0);
      if (height < 0.4) return;
      const wide = Math.max(1.5, width / columns - 0.5);
      marks.push(rect((i * width) / columns, tall - height, wide, height, color));
    });
    return { bars: marks, most, first };
  }, [weights, all, width, color, tall]);
  const x = (index: number) => (index * width) / Math.max(1, all.length);
  const at = all.findIndex((w) => w.axis === "query" && w.position === pinned);
  const wide = Math.max(3, x(count));
  const frame = { x: x(start) + 1, y: 1, width: wide - 2, height: tall - 2 };
  const marks: Mark[] = [
    rect(x(start), 0, wide, tall, theme.tone.line),
    ...bars,
    { kind: "frame", ...frame, color: theme.tone.soft, thickness: 1 },
    ...(at >= 0 ? [rect(x(at), 0, 2, tall, theme.tone.ink)] : []),
  ];
  const move = (event: PointerEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const index = ((event.clientX - box.left) / box.width) * all.length - count / 2;
    show(Math.round(Math.max(0, Math.min(all.length - count, index))));
  };
  return (
    <div class="strip-box">
      <div
        class="density"
        ref={ref}
        role="slider"
        tabIndex={0}
        aria-label="Part of the text in view"
        aria-valuemin={0}
        aria-valuemax={all.length}
        aria-valuenow={start}
        aria-orientation="horizontal"
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          move(event);
        }}
        onPointerMove={(event) => {
          if (event.currentTarget.hasPointerCapture(event.pointerId)) move(event);
        }}
        onKeyDown={(event) => {
          const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
          if (!step) return;
          show(Math.max(0, Math.min(all.length - count, start + step * Math.ceil(count / 2))));
          event.preventDefault();
          event.stopPropagation();
        }}
      >
        <Drawing marks={marks} width={width} height={tall} />
      </div>
      <p class="mut" hidden={isLow}>
        <span>{most > 0 ? `tallest ${shortWeight(most)}` : "pin a word to see what it reads"}</span>
        <span>all {all.length} tokens: drag to move</span>
        <span>{weights ? `first token ${shortWeight(first)}` : ""}</span>
      </p>
    </div>
  );
}
