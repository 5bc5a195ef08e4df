// How a word finds what it reads: q beside k, their products, the sum and the share, as marks.

import { type Entry, printed } from "../data/axis.ts";
import { type Neurons, saturation } from "../data/neurons.ts";
import { formatNumber, shortWeight } from "../data/number.ts";
import type { Rgb } from "../paint/color.ts";
import { cssOf, mix } from "../paint/color.ts";
import type { Theme } from "../paint/theme.ts";
import { shorten } from "./matrix.ts";
import type { Mark } from "./scene.ts";

export interface NeuronLayout {
  readonly width: number;
  readonly height: number;
  readonly rowHeight: number;
  readonly fontSize: number;
  readonly top: number;
  /** Left edges and widths; null where there is no room for it. */
  readonly reader: { x: number; width: number } | null;
  readonly query: { x: number; width: number } | null;
  readonly word: { x: number; width: number };
  readonly key: { x: number; width: number } | null;
  readonly product: { x: number; width: number };
  readonly sum: { x: number; width: number };
  readonly share: { x: number; width: number };
}

export function neuronLayout(
  size: { width: number; height: number },
  count: number,
  ems: { rows: number; keys: number },
  least: number,
): NeuronLayout {
  const { width } = size;
  const rowHeight = Math.min(
    44,
    Math.max(least, Math.floor((size.height - 8) / Math.max(1, count))),
  );
  const fontSize = rowHeight >= 26 ? 16 : rowHeight >= 18 ? 14 : 12;
  const isSmall = width < 520;
  const gap = isSmall ? 8 : 18;
  const word = Math.min(width * 0.2, ems.keys * fontSize + 8);
  const reader = Math.min(width * 0.16, ems.rows * fontSize + 14);
  const [sum, share] = [52, isSmall ? 74 : 96];
  const fixed = word + sum + share + gap * 4 + 24;
  if (isSmall) {
    const strip = Math.max(60, width - fixed - 8);
    const product = { x: 12 + word + gap, width: strip };
    const at = product.x + strip + gap;
    return {
      ...{ width, height: count * rowHeight + 8, rowHeight, fontSize, top: 4 },
      ...{ reader: null, query: null, key: null },
      word: { x: 12, width: word },
      product,
      sum: { x: at, width: sum },
      share: { x: at + sum + gap, width: share },
    };
  }
  const room = width - fixed - reader - gap * 4;
  const strip = Math.max(60, Math.min(190, room / 3));
  let x = 16;
  const next = (own: number, space = gap) => {
    const box = { x, width: own };
    x += own + space;
    return box;
  };
  return {
    ...{ width, height: count * rowHeight + 8, rowHeight, fontSize, top: 4 },
    reader: next(reader),
    query: next(strip, gap * 2.4),
    word: next(word, 10),
    key: next(strip),
    product: next(strip),
    sum: next(sum),
    share: next(share),
  };
}

export interface NeuronInput {
  readonly neurons: Neurons;
  readonly rows: readonly Entry[];
  readonly keys: readonly Entry[];
  /** The key that is looked at, by token position. */
  readonly chosen: number;
  readonly order: readonly number[];
  readonly color: Rgb;
}

export function neuronMarks(input: NeuronInput, layout: NeuronLayout, theme: Theme): Mark[] {
  const { neurons, rows, keys, chosen, order, color } = input;
  const marks: Mark[] = [];
  const { rowHeight, top } = layout;
  const middle = (row: number) => top + (row + 0.5) * rowHeight;
  const strip = Math.max(8, Math.min(20, rowHeight - 6));
  const own = rows.findIndex(({ positions }) => positions.includes(neurons.query));
  const y = middle(Math.max(0, own));
  const limits = {
    q: saturation([neurons.q]),
    k: saturation(neurons.keys),
    p: saturation(neurons.products),
    dot: saturation([neurons.dots]),
  };
  const ink = cssOf(color);
  const cells = (
    vector: Float32Array,
    box: { x: number; width: number },
    at: number,
    limit: number,
  ) =>
    marks.push({
      kind: "image",
      x: box.x,
      y: at - strip / 2,
      width: box.width,
      height: strip,
      columns: order.length,
      rows: 1,
      pixels: stripPixels([vector], order, limit, theme),
    });
  const join = (x1: number, y1: number, x2: number, y2: number, weight: number) =>
    marks.push({
      kind: "curve",
      ...{ x1, y1, x2, y2 },
      color: ink,
      opacity: 0.25 + 0.75 * weight,
      width: 0.8 + 3.2 * weight,
    });
  if (layout.reader && layout.query) {
    rows.forEach((entry, row) => {
      marks.push({
        kind: "text",
        x: layout.reader!.x + layout.reader!.width,
        y: middle(row) + layout.fontSize * 0.35,
        text: shorten(printed(entry.label), 16),
        size: layout.fontSize,
        serif: true,
        bold: row === own,
        anchor: "end",
        fill: row === own ? theme.tone.ink : theme.tone.soft,
      });
    });
    join(layout.reader.x + layout.reader.width + 4, y, layout.query.x - 3, y, 1);
    cells(neurons.q, layout.query, y, limits.q);
  }
  keys.forEach((entry, row) => {
    const at = middle(row);
    const key = entry.positions[0];
    const weight = neurons.weights[key] || 0;
    const isChosen = entry.positions.includes(chosen);
    const isMasked = Number.isNaN(neurons.scores[key]);
    if (layout.query && !isMasked && weight >= 0.02) {
      join(layout.query.x + layout.query.width + 3, y, layout.word.x - 4, at, weight);
    }
    marks.push({
      kind: "text",
      x: layout.word.x,
      y: at + layout.fontSize * 0.35,
      text: shorten(printed(entry.label), Math.max(3, Math.floor(layout.word.width / 6))),
      size: layout.fontSize,
      serif: true,
      bold: isChosen,
      anchor: "start",
      fill: isMasked || (entry.special && !isChosen) ? theme.tone.soft : theme.tone.ink,
    });
    if (isMasked) {
      marks.push({
        kind: "text",
        x: layout.product.x,
        y: at + 4,
        text: "not yet written: hidden from this word",
        size: 11,
        anchor: "start",
        fill: theme.tone.soft,
      });
      return;
    }
    if (layout.key) cells(neurons.keys[key], layout.key, at, limits.k);
    cells(neurons.products[key], layout.product, at, limits.p);
    const dot = neurons.dots[key];
    const tint = Math.min(1, Math.abs(dot) / limits.dot);
    const tone = dot >= 0 ? theme.rgb.positive : theme.rgb.negative;
    const fill = mix(theme.rgb.paper, tone, isChosen ? 1 : 0.12 + 0.4 * tint);
    marks.push({
      kind: "rect",
      x: layout.sum.x,
      y: at - strip / 2,
      width: layout.sum.width,
      height: strip,
      fill: cssOf(fill),
    });
    marks.push({
      kind: "text",
      x: layout.sum.x + layout.sum.width / 2,
      y: at + 4,
      text: formatNumber(dot),
      size: 11.5,
      anchor: "middle",
      bold: isChosen,
      fill: isChosen ? theme.tone.paper : theme.tone.ink,
    });
    const bar = Math.max(1.5, (layout.share.width - 38) * weight);
    marks.push({
      kind: "rect",
      x: layout.share.x,
      y: at - strip / 2,
      width: bar,
      height: strip,
      fill: ink,
    });
    marks.push({
      kind: "text",
      x: layout.share.x + bar + 5,
      y: at + 4,
      text: shortWeight(weight),
      size: 11.5,
      anchor: "start",
      bold: isChosen,
      fill: theme.tone.ink,
    });
    if (!isChosen) return;
    const stops = [layout.key, layout.product, layout.sum, layout.share].filter(
      (box) => box !== null,
    );
    stops.slice(1).forEach((box, i) => {
      join(stops[i].x + stops[i].width + 2, at, box.x - 2, at, 0.9);
    });
  });
  return marks;
}

/** A row of cells per vector: one color positive, one negative, full from `limit` on. */
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

/** The sum of one key, in the pieces that a sentence is made of. */
export interface Worked {
  readonly up: number;
  readonly down: number;
  readonly dot: number;
  readonly scale: number | null;
  readonly bias: number | null;
  readonly score: number;
  /** What e^score is divided by; null where the softmax is not all of it (sinks). */
  readonly total: number | null;
  readonly weight: number;
  readonly most: readonly { readonly neuron: number; readonly product: number }[];
}

export function workedSum(neurons: Neurons, key: number): Worked {
  const products = neurons.products[key];
  let [up, down] = [0, 0];
  for (const product of products) {
    if (product > 0) up += product;
    else down += product;
  }
  const order = Array.from(products.keys()).sort((a, b) => products[b] - products[a]);
  const total = neurons.scores.reduce(
    (sum, score) => sum + (Number.isNaN(score) ? 0 : Math.exp(score)),
    0,
  );
  return {
    up,
    down,
    dot: neurons.dots[key],
    scale: neurons.scale,
    bias: neurons.bias?.[key] ?? null,
    score: neurons.scores[key],
    total: neurons.isSoftmax && Number.isFinite(total) ? total : null,
    weight: neurons.weights[key],
    most: order.slice(0, 3).map((neuron) => ({ neuron, product: products[neuron] })),
  };
}
