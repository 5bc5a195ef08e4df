// Layout of neurons: q beside k, their products, the sum and the weight, as marks.

import { formatNumber, shortWeight } from "../data/format.ts";
import { type Neurons, saturation } from "../data/neurons.ts";
import { type Entry, printed, rowOf } from "../data/tokens.ts";
import { cssOf, mix, pixelsOf, type Rgb, type Theme } from "../paint/theme.ts";
import { shorten } from "./matrix_layout.ts";
import type { Mark, TextMark } from "./scene.ts";

type Span = Readonly<{ x: number; width: number }>;

interface NeuronLayout extends Readonly<Record<"word" | "product" | "sum" | "share", Span>> {
  readonly width: number;
  readonly height: number;
  readonly rowHeight: number;
  readonly fontSize: number;
  readonly top: number;
  readonly reader: Span | null;
  readonly query: Span | null;
  readonly key: Span | null;
}

export function neuronLayout(
  size: { width: number; height: number },
  count: number,
  ems: { rows: number; keys: number },
  least: number,
): NeuronLayout {
  const { width } = size;
  const fitting = Math.floor((size.height - 8) / Math.max(1, count));
  const rowHeight = Math.min(44, Math.max(least, fitting));
  const fontSize = rowHeight >= 26 ? 16 : rowHeight >= 18 ? 14 : 12;
  const isSmall = width < 520;
  const gap = isSmall ? 8 : 18;
  const word = Math.min(width * 0.2, ems.keys * fontSize + 8);
  const reader = Math.min(width * 0.16, ems.rows * fontSize + 14);
  const [sum, share] = [52, isSmall ? 74 : 96];
  const fixed = word + sum + share + gap * 4 + 24;
  const strip = isSmall
    ? Math.max(60, width - fixed - 8)
    : Math.max(60, Math.min(190, (width - fixed - reader - gap * 4) / 3));
  let x = isSmall ? 12 : 16;
  const next = (size: number, space = gap) => {
    const box = { x, width: size };
    x += size + space;
    return box;
  };
  return {
    ...{ width, height: count * rowHeight + 8, rowHeight, fontSize, top: 4 },
    reader: isSmall ? null : next(reader),
    query: isSmall ? null : next(strip, gap * 2.4),
    word: next(word, isSmall ? gap : 10),
    key: isSmall ? null : next(strip),
    product: next(strip),
    sum: next(sum),
    share: next(share),
  };
}

interface NeuronInput {
  readonly neurons: Neurons;
  readonly rows: readonly Entry[];
  readonly keys: readonly Entry[];
  readonly chosen: number;
  readonly order: readonly number[];
  readonly color: Rgb;
}

export function neuronMarks(input: NeuronInput, layout: NeuronLayout, theme: Theme): Mark[] {
  const { neurons, rows, keys, chosen, order, color } = input;
  const marks: Mark[] = [];
  const { rowHeight, top, fontSize } = layout;
  const { ink, soft, paper } = theme.tone;
  const middle = (row: number) => top + (row + 0.5) * rowHeight;
  const height = Math.max(8, Math.min(20, rowHeight - 6));
  const queryRow = rowOf(rows, neurons.query);
  const y = middle(Math.max(0, queryRow));
  const limits = {
    q: saturation([neurons.q]),
    k: saturation(neurons.keys),
    p: saturation(neurons.products),
    dot: saturation([neurons.dots]),
  };
  const cells = (vector: Float32Array, { x, width }: Span, middleY: number, limit: number) => {
    const pixels = stripPixels(vector, order, limit, theme);
    const box = { x, y: middleY - height / 2, width, height };
    marks.push({ kind: "image", ...box, columns: order.length, rows: 1, pixels });
  };
  const bar = ({ x, width }: Span, middleY: number, fill: string) =>
    marks.push({ kind: "rect", x, y: middleY - height / 2, width, height, fill });
  const join = (x1: number, y1: number, x2: number, y2: number, weight: number) =>
    marks.push({
      kind: "curve",
      ...{ x1, y1, x2, y2 },
      color: cssOf(color),
      opacity: 0.25 + 0.75 * weight,
      width: 0.8 + 3.2 * weight,
    });
  const write = (x: number, middleY: number, text: string, style: Partial<TextMark>) => {
    const place = { x, y: middleY + 4 };
    marks.push({ kind: "text", ...place, text, size: 11.5, anchor: "start", fill: ink, ...style });
  };
  const word = (x: number, middleY: number, text: string, style: Partial<TextMark>) =>
    write(x, middleY, text, {
      y: middleY + fontSize * 0.35,
      size: fontSize,
      serif: true,
      ...style,
    });
  if (layout.reader && layout.query) {
    const end = layout.reader.x + layout.reader.width;
    rows.forEach((entry, row) => {
      const bold = row === queryRow;
      const style = { anchor: "end", bold, fill: bold ? ink : soft } as const;
      word(end, middle(row), shorten(printed(entry.label), 16), style);
    });
    join(end + 4, y, layout.query.x - 3, y, 1);
    cells(neurons.q, layout.query, y, limits.q);
  }
  keys.forEach((entry, row) => {
    const keyY = middle(row);
    const key = entry.positions[0];
    const weight = neurons.weights[key] || 0;
    const bold = entry.positions.includes(chosen);
    const isMasked = Number.isNaN(neurons.scores[key]);
    if (layout.query && !isMasked && weight >= 0.02) {
      join(layout.query.x + layout.query.width + 3, y, layout.word.x - 4, keyY, weight);
    }
    const room = Math.max(3, Math.floor(layout.word.width / 6));
    const fill = isMasked || (entry.special && !bold) ? soft : ink;
    word(layout.word.x, keyY, shorten(printed(entry.label), room), { bold, fill });
    if (isMasked) {
      const hidden = "not yet written: hidden from this word";
      write(layout.product.x, keyY, hidden, { size: 11, fill: soft });
      return;
    }
    if (layout.key) cells(neurons.keys[key], layout.key, keyY, limits.k);
    cells(neurons.products[key], layout.product, keyY, limits.p);
    const dot = neurons.dots[key];
    const tint = bold ? 1 : 0.12 + 0.4 * Math.min(1, Math.abs(dot) / limits.dot);
    const tone = dot >= 0 ? theme.rgb.positive : theme.rgb.negative;
    bar(layout.sum, keyY, cssOf(mix(theme.rgb.paper, tone, tint)));
    write(layout.sum.x + layout.sum.width / 2, keyY, formatNumber(dot), {
      anchor: "middle",
      bold,
      fill: bold ? paper : ink,
    });
    const width = Math.max(1.5, (layout.share.width - 38) * weight);
    bar({ x: layout.share.x, width }, keyY, cssOf(color));
    write(layout.share.x + width + 5, keyY, shortWeight(weight), { bold });
    if (!bold) return;
    const stops = [layout.key, layout.product, layout.sum, layout.share].filter(
      (box) => box !== null,
    );
    stops.slice(1).forEach((box, i) => {
      join(stops[i].x + stops[i].width + 2, keyY, box.x - 2, keyY, 0.9);
    });
  });
  return marks;
}

/** Query as a strip of its own, which stays in view above the keys. */
export function queryStrip(
  neurons: Neurons,
  order: readonly number[],
  size: { width: number; height: number },
  theme: Theme,
): Mark[] {
  const pixels = stripPixels(neurons.q, order, saturation([neurons.q]), theme);
  return [{ kind: "image", x: 0, y: 0, ...size, columns: order.length, rows: 1, pixels }];
}

/** Color a vector as a row of cells, saturated from `limit` on. */
function stripPixels(
  vector: Float32Array,
  order: readonly number[],
  limit: number,
  theme: Theme,
): Uint8ClampedArray<ArrayBuffer> {
  const { missing, positive, negative } = theme.rgb;
  const pixels = pixelsOf(order.length, (i) => {
    const value = vector[order[i]];
    return Number.isNaN(value) ? missing : value >= 0 ? positive : negative;
  });
  order.forEach((neuron, i) => {
    const share = Math.min(1, Math.abs(vector[neuron] / limit));
    if (!Number.isNaN(share)) pixels[4 * i + 3] = 255 * share ** 0.8;
  });
  return pixels;
}

/** Terms of one key's score, for a sentence. */
interface Worked {
  readonly up: number;
  readonly down: number;
  readonly dot: number;
  readonly scale: number | null;
  readonly bias: number | null;
  readonly score: number;
  /** Denominator of the softmax; null if there is more to it (sink logits). */
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
