// The neuron view's geometry and marks: strips of neurons that line up with one another.

import { type Entry, printed } from "../data/axis.ts";
import { type Neurons, saturation } from "../data/neurons.ts";
import { formatNumber, formatSigned, formatWeight, type Precision } from "../data/number.ts";
import type { Rgb } from "../paint/color.ts";
import { cssOf } from "../paint/color.ts";
import type { Theme } from "../paint/theme.ts";
import { shorten } from "./matrix.ts";
import type { ImageMark, Mark } from "./scene.ts";

/** A column of the view; `strip` columns show one cell per neuron. */
export interface NeuronColumn {
  readonly name: "key" | "product" | "dot" | "bias" | "score" | "softmax" | "value";
  readonly x: number;
  readonly width: number;
}

export interface NeuronLayout {
  readonly width: number;
  readonly rowHeight: number;
  readonly label: number;
  readonly columns: readonly NeuronColumn[];
  /** Height of the part that stays on top, and of the rows below it. */
  readonly top: number;
  readonly height: number;
}

const PAD = 14;
const GAP = 18;
export const STRIP_Y = 20;
export const STRIP_HEIGHT = 12;

export function neuronLayout(
  width: number,
  rows: number,
  neurons: Pick<Neurons, "q" | "values" | "bias">,
  ems: number,
): NeuronLayout {
  const label = Math.min(130, Math.max(56, Math.ceil(ems * 12) + 6));
  const numbers: [NeuronColumn["name"], number][] = [["dot", 46]];
  if (neurons.bias) numbers.push(["bias", 46]);
  numbers.push(["score", 46], ["softmax", 104]);
  const strips = neurons.values ? 3 : 2;
  const fixed = PAD * 2 + label + numbers.reduce((sum, [, w]) => sum + w + GAP, 0) + strips * GAP;
  const strip = Math.max(90, Math.min((width - fixed) / strips, 10 * neurons.q.length));
  const columns: NeuronColumn[] = [];
  let x = PAD + label + GAP;
  const add = (name: NeuronColumn["name"], columnWidth: number) => {
    columns.push({ name, x, width: columnWidth });
    x += columnWidth + GAP;
  };
  add("key", strip);
  add("product", strip);
  for (const [name, columnWidth] of numbers) add(name, columnWidth);
  if (neurons.values) add("value", strip);
  const rowHeight = rows <= 24 ? 18 : 15;
  return {
    width: Math.max(width, x - GAP + PAD),
    rowHeight,
    label,
    columns,
    top: 56,
    height: rows * rowHeight + 8,
  };
}

export const columnOf = (layout: NeuronLayout, name: NeuronColumn["name"]) =>
  layout.columns.find((column) => column.name === name);

const TITLES: Record<NeuronColumn["name"], [above: string, below: string]> = {
  key: ["query q", "key k"],
  product: ["contribution", "q × k"],
  dot: ["", "q·k"],
  bias: ["", "bias"],
  score: ["", "score"],
  softmax: ["", "softmax"],
  value: ["head output", "value v"],
};

/** Titles, and the strips of the query, the contributions and the head's output. */
export function headerMarks(
  neurons: Neurons,
  token: string,
  layout: NeuronLayout,
  order: readonly number[],
  theme: Theme,
): Mark[] {
  const { tone } = theme;
  const marks: Mark[] = [];
  const text = (x: number, y: number, label: string, bold: boolean, anchor: "start" | "end") =>
    marks.push({
      kind: "text",
      x,
      y,
      text: label,
      size: 11,
      anchor,
      bold,
      fill: bold ? tone.ink : tone.soft,
    });
  text(PAD + layout.label, STRIP_Y + 10, shorten(token, 18), true, "end");
  for (const { name, x, width } of layout.columns) {
    const isStrip = name === "key" || name === "product" || name === "value";
    const at = isStrip ? x : name === "softmax" ? x : x + width;
    const anchor = isStrip || name === "softmax" ? "start" : "end";
    text(at, 13, TITLES[name][0], false, anchor);
    text(at, 49, TITLES[name][1], false, anchor);
  }
  const strip = (
    name: NeuronColumn["name"],
    vector: Float32Array,
    limit: number,
    by: readonly number[],
  ) => {
    const column = columnOf(layout, name);
    if (!column) return;
    const pixels = stripPixels([vector], by, limit, theme);
    const { x, width } = column;
    marks.push({
      kind: "image",
      x,
      y: STRIP_Y,
      width,
      height: STRIP_HEIGHT,
      columns: by.length,
      rows: 1,
      pixels,
    });
  };
  strip("key", neurons.q, saturation([neurons.q]), order);
  strip("product", neurons.contribution, saturation([neurons.contribution]), order);
  if (neurons.output) {
    const numbers = Array.from(neurons.output.keys());
    strip("value", neurons.output, saturation([neurons.output]), numbers);
  }
  return marks;
}

/** One row per key. */
export function rowMarks(
  neurons: Neurons,
  entries: readonly Entry[],
  layout: NeuronLayout,
  order: readonly number[],
  theme: Theme,
  precision: Precision,
): Mark[] {
  const { tone } = theme;
  const { rowHeight } = layout;
  const marks: Mark[] = [];
  const picture = (
    name: NeuronColumn["name"],
    vectors: readonly Float32Array[] | null,
    by: readonly number[],
  ) => {
    const column = columnOf(layout, name);
    if (!column || !vectors) return;
    const image: ImageMark = {
      kind: "image",
      x: column.x,
      y: 0,
      width: column.width,
      height: vectors.length * rowHeight,
      columns: by.length,
      rows: vectors.length,
      pixels: stripPixels(vectors, by, saturation(vectors), theme),
    };
    marks.push(image);
    for (let row = 0; row < vectors.length; row++) {
      const y = row * rowHeight;
      marks.push({
        kind: "rect",
        x: column.x,
        y: y - 1.5,
        width: column.width,
        height: 3,
        fill: tone.panel,
      });
    }
  };
  picture("key", neurons.keys, order);
  picture("product", neurons.products, order);
  picture("value", neurons.values, neurons.values ? Array.from(neurons.values[0].keys()) : []);
  entries.forEach((entry, row) => {
    const y = row * rowHeight + rowHeight / 2 + 4;
    const isMasked = Number.isNaN(neurons.scores[row]);
    const fill = isMasked || entry.special ? tone.soft : tone.ink;
    const text = (x: number, label: string, anchor: "start" | "end", size = 12) =>
      marks.push({ kind: "text", x, y, text: label, size, anchor, fill });
    text(PAD + layout.label, shorten(printed(entry.label), 18), "end");
    for (const { name, x, width } of layout.columns) {
      if (name === "dot") text(x + width, formatNumber(neurons.dots[row]), "end", 11);
      if (name === "bias")
        text(x + width, isMasked ? "" : formatSigned(neurons.bias![row]), "end", 11);
      if (name === "score")
        text(x + width, isMasked ? "masked" : formatNumber(neurons.scores[row]), "end", 11);
      if (name !== "softmax" || isMasked) continue;
      const weight = neurons.weights[row];
      const bar = Math.max(weight > 0.002 ? 1 : 0, weight * 60);
      marks.push({
        kind: "rect",
        x,
        y: row * rowHeight + 4,
        width: bar,
        height: rowHeight - 8,
        fill: tone.accent,
      });
      text(x + bar + 5, formatWeight(weight, neurons.isSoftmax ? "fine" : precision), "start", 11);
    }
  });
  return marks;
}

/** A row of cells per vector: blue positive, orange negative, full color from `limit` on. */
export function stripPixels(
  vectors: readonly Float32Array[],
  order: readonly number[],
  limit: number,
  theme: Theme,
): Uint8ClampedArray<ArrayBuffer> {
  const pixels = new Uint8ClampedArray(vectors.length * order.length * 4);
  let at = 0;
  for (const vector of vectors) {
    for (const i of order) {
      const share = vector[i] / limit;
      const [red, green, blue]: Rgb = Number.isNaN(share)
        ? theme.rgb.missing
        : share >= 0
          ? theme.rgb.positive
          : theme.rgb.negative;
      pixels[at++] = red;
      pixels[at++] = green;
      pixels[at++] = blue;
      pixels[at++] = Number.isNaN(share) ? 255 : 255 * Math.min(1, Math.abs(share)) ** 0.8;
    }
  }
  return pixels;
}

/** The sum in words and numbers, for one key. */
export function equation(neurons: Neurons, key: number): string {
  const { positive, negative, ups, downs } = halves(neurons.products[key]);
  const parts = [
    `Σ q×k = ${formatNumber(positive)} (${ups} neurons up) − ${formatNumber(-negative)} (${downs} down) = ${formatNumber(neurons.dots[key])}`,
  ];
  if (neurons.scale !== null) {
    const scaled = formatNumber(neurons.dots[key] * neurons.scale);
    parts.push(`× scale ${Number(neurons.scale.toPrecision(4))} = ${scaled}`);
  }
  const score = neurons.scores[key];
  if (Number.isNaN(score)) return [...parts, "masked: the query does not see this key"].join("  ");
  const rest = neurons.scale === null ? "other terms" : "bias";
  if (neurons.bias)
    parts.push(`${formatSigned(neurons.bias[key])} ${rest} = score ${formatNumber(score)}`);
  else parts[parts.length - 1] += " = score";
  parts.push(`→ softmax ${formatWeight(neurons.weights[key], "fine")}`);
  return parts.join("  ");
}

function halves(terms: Float32Array) {
  const sum = { positive: 0, negative: 0, ups: 0, downs: 0 };
  for (const term of terms) {
    if (term > 0) {
      sum.positive += term;
      sum.ups++;
    } else if (term < 0) {
      sum.negative += term;
      sum.downs++;
    }
  }
  return sum;
}

/** The color of the state strips and legend ends, as CSS. */
export const legendStops = (theme: Theme): string[] => [
  cssOf(theme.rgb.negative),
  cssOf(theme.rgb.negative, 0.4),
  "transparent",
  cssOf(theme.rgb.positive, 0.4),
  cssOf(theme.rgb.positive),
];
