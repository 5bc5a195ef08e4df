// Magnified tile: what the pinned word reads with a head, with words and numbers.

import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { NO_FILTER } from "../data/filtered_block.ts";
import { shortWeight } from "../data/format.ts";
import { summary } from "../data/head_summary.ts";
import { printed } from "../data/tokens.ts";
import type { Block } from "../data/trace.ts";
import {
  colored,
  drawLines,
  rowsOf,
  thumbnailFilter,
  thumbnailWeights,
} from "../layout/heads_layout.ts";
import { shorten } from "../layout/matrix_layout.ts";
import { type Mark, rect } from "../layout/scene.ts";
import { cssOf, type Theme } from "../paint/theme.ts";
import { headName } from "../state/selection.ts";
import { Drawing } from "./controls.tsx";
import { useExplorer } from "./explorer_context.ts";
import { noteOf } from "./heads_view.tsx";

const SIZE = { width: 252, height: 112 } as const;
/** Number of words up to which bars have labels. */
const LABELED = 24;

/** Bars of one or two rows, with the words under them. */
function barMarks(
  rows: readonly { values: ArrayLike<number>; fill: string }[],
  texts: readonly string[],
  theme: Theme,
): Mark[] {
  const marks: Mark[] = [];
  const count = texts.length;
  const pitch = SIZE.width / count;
  const floor = count <= LABELED ? SIZE.height - 42 : SIZE.height - 4;
  const wide = Math.max(1, (pitch - 2) / rows.length);
  rows.forEach(({ values, fill }, n) => {
    for (let i = 0; i < count; i++) {
      const height = (floor - 4) * Math.min(1, values[i] || 0);
      if (height < 0.5) continue;
      marks.push(rect(i * pitch + n * wide + 1, floor - height, wide, height, fill));
    }
  });
  marks.push(rect(0, floor, SIZE.width, 1, theme.tone.strong));
  if (count > LABELED) return marks;
  texts.forEach((text, i) => {
    const place = { x: i * pitch + pitch / 2 - 2, y: floor + 9, size: 9, turn: 55 };
    const label = { ...place, text: shorten(printed(text), 8), fill: theme.tone.soft };
    marks.push({ kind: "text", ...label, anchor: "start" });
  });
  return marks;
}

/** The whole head in small, for texts that are too long for bars. */
function wholeMarks(block: Block, layerIndex: number, head: number, theme: Theme): Mark[] {
  const filter = thumbnailFilter(block, { ...NO_FILTER, specials: "shown", above: 0 });
  const weights = thumbnailWeights(block, layerIndex, head, filter);
  const [rows, columns] = [filter.rows.length, filter.columns.length];
  const { panel, ink } = theme.rgb;
  const on = filter.isLines
    ? { ...SIZE, ink: new Float32Array(SIZE.width * SIZE.height) }
    : { width: columns, height: rows, ink: weights.map((weight) => Math.sqrt(weight)) };
  if (filter.isLines) drawLines(weights, rows, columns, on);
  const side = Math.min(SIZE.width, SIZE.height);
  const box = filter.isLines ? SIZE : { width: side, height: side };
  const raster = { columns: on.width, rows: on.height, pixels: colored(on, panel, ink) };
  return [{ kind: "image", x: 0, y: 0, ...box, ...raster }];
}

export function Magnifier() {
  const explorer = useExplorer();
  const { session } = explorer;
  const at = explorer.magnified.value;
  const ref = useRef<HTMLDivElement>(null);
  const theme = session.theme.value;
  const side = session.lead.value;
  const { block } = side;
  const { word } = session.selection.value;
  const key = at && `${at.layerIndex}/${at.head}`;
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element || !at) return;
    const frame = element.offsetParent?.getBoundingClientRect() ?? new DOMRect();
    const { offsetWidth: width, offsetHeight: height } = element;
    const right = at.box.right - frame.left + 10;
    const left = right + width > frame.width - 4 ? at.box.left - frame.left - width - 10 : right;
    const top = Math.min(at.box.top - frame.top - 20, frame.height - height - 6);
    Object.assign(element.style, { left: `${Math.max(4, left)}px`, top: `${Math.max(4, top)}px` });
  }, [at]);
  const sides = session.compared && session.sides.value.length > 1 ? session.sides.value : [side];
  const read = useMemo(() => {
    if (!at) return null;
    const rows = sides.flatMap((one) => {
      const row = rowsOf(one.block, session.place(one, word, "query"))?.(at.layerIndex, at.head);
      return row ? [row] : [];
    });
    return rows.length === sides.length ? rows : null;
  }, [key, word, sides.length, block]);
  const marks = useMemo(() => {
    if (!at) return [];
    if (!read) return wholeMarks(block, at.layerIndex, at.head, theme);
    const fills = sides.length > 1 ? [theme.tone.aedge, theme.tone.bedge] : [cssOf(theme.rgb.ink)];
    const rows = read.map((values, i) => ({ values, fill: fills[i] }));
    return barMarks(rows, block.keyTokens.texts, theme);
  }, [key, read, theme]);
  if (!at) return null;
  const id = { layer: block.layers[at.layerIndex], head: at.head };
  const isHidden = session.exercise.isHidden.value;
  const position = session.place(side, word, "query");
  return (
    <div class="magnifier" ref={ref} role="tooltip">
      <strong>{headName(id)}</strong>
      <Drawing marks={marks} {...SIZE} />
      {read?.map((values, i) => (
        <p key={i}>
          {sides.length > 1 && <b class="letter">{sides[i].letter}</b>}
          <em>{printed(block.queryTokens.texts[position!])}</em> reads{" "}
          {summary(values, 3, 0.02)
            .top.map(
              ({ index, weight }) =>
                `${printed(sides[i].block.keyTokens.texts[index])} ${shortWeight(weight)}`,
            )
            .join(" · ") || "nothing above 0.02"}
        </p>
      ))}
      {!isHidden &&
        noteOf(session, side, at.layerIndex, at.head).map(([label, value]) => (
          <div key={label}>
            <span class="mut">{label}</span>
            <b>{value}</b>
          </div>
        ))}
    </div>
  );
}
