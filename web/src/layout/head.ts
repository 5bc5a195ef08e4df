// The head view as marks: lines between the columns, and what a focused token adds to them.

import { type Entry, printed } from "../data/axis.ts";
import type { Matrix } from "../data/lens.ts";
import { formatWeight, type Precision } from "../data/number.ts";
import type { Series } from "../data/series.ts";
import { cssOf, type Rgb } from "../paint/color.ts";
import type { Theme } from "../paint/theme.ts";
import { type Columns, rowY } from "./columns.ts";
import type { Focus } from "./focus.ts";
import { type LinkFilter, type Links, lineStyle, linksOf } from "./links.ts";
import type { Mark, TextMark } from "./scene.ts";

export interface Painted extends Series {
  readonly color: Rgb;
}

/** All links of all series, within one budget. */
export function allLinks(series: readonly Painted[], filter: LinkFilter): Links[] {
  const budget = Math.max(400, Math.floor(filter.budget / series.length));
  return series.map((one) => linksOf(one.matrix, { ...filter, budget }));
}

/** One line per link, weak ones first. */
export function lineMarks(
  series: readonly Painted[],
  links: readonly Links[],
  columns: Columns,
  theme: Theme,
): Mark[] {
  const marks: Mark[] = [];
  series.forEach((one, s) => {
    const { count, rows, columns: keys, weights } = links[s];
    // Heads run as strands beside one another, so that none hides the others.
    const shift = (s - (series.length - 1) / 2) * strandGap(columns, series.length);
    const plain = cssOf(one.color);
    for (let i = 0; i < count; i++) {
      const weight = weights[i];
      const { opacity, width } = lineStyle(weight, one.signed);
      marks.push({
        kind: "line",
        x1: columns.lines.left,
        y1: rowY(columns, rows[i]) + shift,
        x2: columns.lines.right,
        y2: rowY(columns, keys[i]) + shift,
        color: one.signed ? (weight > 0 ? theme.tone.positive : theme.tone.negative) : plain,
        opacity,
        width,
      });
    }
  });
  return marks;
}

function strandGap(columns: Columns, count: number): number {
  return Math.min(2, (columns.rowHeight * 0.55) / count);
}

/** Attention of the focused tokens, summed, per token of the other side. */
export function sums(matrix: Matrix, focus: Focus, side: "key" | "query"): Float32Array | null {
  const own = side === "key" ? focus.rows : focus.columns;
  if (!own) return null;
  const length = side === "key" ? matrix.columns : matrix.rows;
  const totals = new Float32Array(length);
  for (const at of own) {
    for (let other = 0; other < length; other++) {
      const index = side === "key" ? at * matrix.columns + other : other * matrix.columns + at;
      const weight = matrix.weights[index];
      totals[other] += weight;
    }
  }
  return totals;
}

/** Cells beside the tokens of one side: a bar and a number for one series, cells for several. */
export function cellMarks(
  series: readonly Painted[],
  focus: Focus,
  side: "key" | "query",
  columns: Columns,
  theme: Theme,
  precision: Precision,
): Mark[] {
  const marks: Mark[] = [];
  const totals = series.map((one) => sums(one.matrix, focus, side));
  const height = Math.min(14, columns.rowHeight - 2);
  const start = side === "key" ? columns.cells.right : columns.cells.left;
  const outward = side === "key" ? 1 : -1;
  series.forEach((one, s) => {
    totals[s]?.forEach((total, index) => {
      const y = rowY(columns, index) - height / 2;
      const color = one.signed
        ? total > 0 ? theme.rgb.positive : theme.rgb.negative
        : one.color; // biome-ignore format: one choice per line
      if (Number.isNaN(total)) {
        const x = side === "key" ? start : start + columns.cells.width - 8;
        marks.push({ kind: "rect", x, y, width: 8, height, fill: theme.tone.missing });
        return;
      }
      const size = Math.min(1, Math.abs(total));
      if (series.length > 1) {
        const x = start + s * columns.cellWidth;
        const width = Math.max(1, columns.cellWidth - 1);
        marks.push({ kind: "rect", x, y, width, height, fill: theme.tone.raised });
        if (size >= 0.004) {
          marks.push({ kind: "rect", x, y, width, height, fill: cssOf(color, size ** 0.72) });
        }
        return;
      }
      if (size < 0.0005) return;
      const bar = Math.max(1, size * columns.cellWidth);
      const edge = side === "key" ? start : start + columns.cells.width;
      marks.push({
        kind: "rect",
        x: side === "key" ? edge : edge - bar,
        y: y + 1,
        width: bar,
        height: height - 2,
        fill: cssOf(color, 0.85),
      });
      if (size >= 0.01) {
        marks.push({
          kind: "text",
          x: edge + outward * (bar + 4),
          y: y + height / 2 + 3.5,
          text: formatWeight(total, precision),
          size: 10,
          anchor: side === "key" ? "start" : "end",
          fill: theme.tone.soft,
        });
      }
    });
  });
  return marks;
}

/** Token labels of both columns, for export (on the page they are elements). */
export function labelMarks(
  rows: readonly Entry[],
  keys: readonly Entry[],
  focus: Focus,
  columns: Columns,
  theme: Theme,
): TextMark[] {
  const label = (
    entry: Entry,
    index: number,
    x: number,
    anchor: "start" | "end",
    focused: ReadonlySet<number> | null,
  ): TextMark => ({
    kind: "text",
    x,
    y: rowY(columns, index) + columns.fontSize * 0.35,
    text: printed(entry.label),
    size: columns.fontSize,
    anchor,
    bold: focused?.has(index) ?? false,
    fill: entry.special ? theme.tone.soft : entry.generated ? theme.tone.accent : theme.tone.ink,
  });
  return [
    ...rows.map((entry, i) => label(entry, i, columns.labels.left, "end", focus.rows)),
    ...keys.map((entry, i) => label(entry, i, columns.labels.right, "start", focus.columns)),
  ];
}
