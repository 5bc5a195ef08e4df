// Layout of wires over a sentence: columns are positions, rows are layers, upward.

import type { WirePart, WiresPart } from "../../generated/payload.ts";

/** Box of a head, an MLP, the keys or values of a group, or the answer. */
export interface WireBox {
  readonly kind: "head" | "mlp" | "input" | "answer" | "word";
  readonly layer: number;
  readonly heads: readonly number[];
  readonly text: string;
  readonly x: number;
  readonly y: number;
  readonly width: number;
}

export interface WireLine {
  readonly wire: WirePart;
  readonly index: number;
  readonly path: string;
  readonly width: number;
  /** Place of its number; null where there is none without covering others. */
  readonly label: { readonly x: number; readonly y: number } | null;
}

export interface WireWord {
  /** Position; -1 for words that are left out. */
  readonly position: number;
  readonly x: number;
}

export interface WiresLayout {
  readonly width: number;
  readonly height: number;
  readonly rows: readonly { readonly text: string; readonly y: number }[];
  readonly boxes: readonly WireBox[];
  readonly lines: readonly WireLine[];
  /** From keys or values to the heads that read them. */
  readonly dotted: readonly { readonly path: string }[];
  readonly words: readonly WireWord[];
  readonly wordY: number;
  readonly isTurned: boolean;
}

interface WiresInput {
  readonly part: WiresPart;
  readonly width: number;
  readonly height: number;
  textWidth(position: number): number;
}

export const BOX_HEIGHT = 22;
const LEFT = 52;
/** Widths of boxes, from wide to small; the first that fits is taken. */
const BOXES = [
  { head: 68, mlp: 60, isShort: false, near: 1 },
  { head: 44, mlp: 44, isShort: true, near: 1 },
  { head: 32, mlp: 34, isShort: true, near: 0 },
];
const TOP = 34;
const GAP = 6;
/** Texts with more tokens leave out words far from every wire. */
const LONG = 30;
const LABEL = { width: 38, height: 14 };

type Draft = Omit<WireBox, "x" | "y" | "width"> & { row: number; at: number };

export function wiresLayout(input: WiresInput): WiresLayout {
  const all = BOXES.map((size) => layoutWith(input, size));
  return all.find(({ width }) => width <= input.width) ?? all[all.length - 1];
}

function layoutWith(
  { part, width, height, textWidth }: WiresInput,
  { head: headWidth, mlp: mlpWidth, isShort, near }: (typeof BOXES)[number],
): WiresLayout {
  const widths = { head: headWidth, mlp: mlpWidth, input: 20, answer: 0, word: 0 };
  const drafts = new Map<string, Draft>();
  const add = (key: string, draft: Draft) => {
    if (!drafts.has(key)) drafts.set(key, draft);
    return key;
  };
  const ends = part.wires.map((wire) => {
    const at = wire.at;
    const head = (layer: number, number: number) =>
      add(`L${layer}H${number}@${at}`, {
        ...{ kind: "head" as const, layer, heads: [number], row: 2 * layer, at },
        text: isShort ? `H${number}` : `L${layer} H${number}`,
      });
    const mlp = (layer: number) =>
      add(`MLP${layer}@${at}`, {
        ...{ kind: "mlp" as const, layer, heads: [], row: 2 * layer + 1, at },
        text: isShort ? "MLP" : `MLP ${layer}`,
      });
    const source =
      wire.source_head >= 0
        ? head(wire.source_layer, wire.source_head)
        : wire.source === "embedding"
          ? add(`word@${at}`, { kind: "word", layer: -1, heads: [], text: "", row: -1, at })
          : mlp(wire.source_layer);
    const { layer, by, reader_heads: heads } = wire;
    const reader =
      by === "logits"
        ? add("answer", { kind: "answer", layer, heads: [], text: "", row: 1e6, at: part.position })
        : by === "mlp"
          ? mlp(layer)
          : by === "q"
            ? head(layer, heads[0])
            : add(`${by}${layer}/${heads}@${at}`, {
                ...{ kind: "input" as const, layer, heads, text: by, row: 2 * layer, at },
              });
    return { source, reader };
  });
  const all = [...drafts.entries()];
  const rowNumbers = [...new Set(all.map(([, { row }]) => row))].sort((a, b) => a - b);
  const inner = rowNumbers.filter((row) => row >= 0 && row < 1e6);
  // Columns.
  const used = all.map(([, { at }]) => at);
  const shown = shownPositions(part, used, near);
  const cell = (at: number) => {
    const sizes = rowNumbers.map((row) =>
      all
        .filter(([, draft]) => draft.at === at && draft.row === row)
        .reduce((sum, [, { kind }]) => sum + (widths[kind] ? widths[kind] + GAP : 0), 0),
    );
    return Math.max(0, ...sizes);
  };
  const natural = shown.map((at) => (at < 0 ? 22 : textWidth(at) + 10));
  const least = shown.map((at) => Math.max(cell(at), at < 0 ? 22 : 21));
  const room = Math.max(0, width - LEFT - 12);
  const sum = (list: readonly number[]) => list.reduce((total, size) => total + size, 0);
  const wide = natural.map((size, i) => Math.max(size, least[i]));
  const [most, fewest] = [sum(wide), sum(least)];
  const share = most > room ? Math.max(0, (room - fewest) / Math.max(1, most - fewest)) : 1;
  const spare = most < room ? (room - most) / shown.length : 0;
  const columns = least.map((size, i) => size + share * (wide[i] - size) + spare);
  const isTurned = columns.some((size, i) => shown[i] >= 0 && size < natural[i] - 6);
  let edge = LEFT;
  const middles = new Map<number, number>();
  const words = shown.map((position, i) => {
    const x = edge + columns[i] / 2;
    edge += columns[i];
    if (position >= 0) middles.set(position, x);
    return { position, x };
  });
  const foot = isTurned ? 74 : 46;
  const rowHeight = Math.max(30, Math.min(62, (height - TOP - foot - 12) / (inner.length + 0.5)));
  const wordY = TOP + rowHeight * (inner.length + 0.5);
  const yOf = (row: number) => {
    if (row < 0) return wordY;
    return row >= 1e6 ? TOP - 16 : wordY - rowHeight * (inner.indexOf(row) + 0.6);
  };
  // Boxes of one cell stand side by side, keys and values first.
  const boxes = new Map<string, WireBox>();
  for (const [key, draft] of all) {
    const beside = all
      .filter(([, other]) => other.at === draft.at && other.row === draft.row)
      .sort(
        ([, a], [, b]) => b.kind.localeCompare(a.kind) || (a.heads[0] ?? 0) - (b.heads[0] ?? 0),
      );
    const total = sum(beside.map(([, { kind }]) => widths[kind] + GAP)) - GAP;
    const place = beside.findIndex(([other]) => other === key);
    const before = sum(beside.slice(0, place).map(([, { kind }]) => widths[kind] + GAP));
    const size = widths[draft.kind];
    const middle = middles.get(draft.at) ?? LEFT - 8;
    const x = middle - total / 2 + before + size / 2;
    boxes.set(key, { ...draft, x, y: yOf(draft.row), width: size });
  }
  const placed = [...boxes.values()];
  const largest = Math.max(1e-9, ...part.wires.map(({ share: value }) => Math.abs(value)));
  const taken: Taken[] = placed.map(({ x, y, width: w }) => ({
    ...{ x, y, width: w },
  }));
  const perColumn = new Map<string, number>();
  const curves = part.wires.map((wire, index) => {
    const [from, to] = [boxes.get(ends[index].source)!, boxes.get(ends[index].reader)!];
    const y1 = from.kind === "word" ? from.y - 4 : from.y - BOX_HEIGHT / 2;
    const y2 = to.y + (to.kind === "input" ? 10 : BOX_HEIGHT / 2);
    const isSteep = Math.abs(from.x - to.x) < 30 && y1 - y2 > rowHeight;
    const column = `${Math.round(from.x / 30)}`;
    const count = perColumn.get(column) ?? 0;
    if (isSteep) perColumn.set(column, count + 1);
    // Wires of one column bow to both sides.
    const bow = isSteep ? (count % 2 ? 1 : -1) * (26 + 16 * Math.floor(count / 2)) : 0;
    const third = (y1 - y2) * 0.4;
    const [a, b] = [
      { x: from.x + bow, y: y1 - third },
      { x: to.x + bow, y: y2 + third },
    ];
    const point = (t: number) => {
      const [u, v] = [1 - t, t];
      const of = (p: number, q: number, r: number, s: number) =>
        u ** 3 * p + 3 * u * u * v * q + 3 * u * v * v * r + v ** 3 * s;
      return { x: of(from.x, a.x, b.x, to.x), y: of(y1, a.y, b.y, y2) };
    };
    const path = `M${[from.x, y1]}C${[a.x, a.y]} ${[b.x, b.y]} ${[to.x, y2]}`;
    return { wire, index, path, width: 1.4 + (9 * Math.abs(wire.share)) / largest, point };
  });
  const largestFirst = [...curves].sort((a, b) => b.width - a.width);
  const labels = new Map(largestFirst.map(({ index, point }) => [index, freePlace(point, taken)]));
  const lines = curves.map(({ point: _, ...line }) => ({
    ...line,
    label: labels.get(line.index)!,
  }));
  const dotted = placed
    .filter(({ kind }) => kind === "input")
    .flatMap((input) =>
      placed
        .filter(
          (box) =>
            box.kind === "head" && box.layer === input.layer && input.heads.includes(box.heads[0]),
        )
        .map((box) => {
          const side = Math.sign(box.x - input.x) || 1;
          const [x1, x2] = [input.x + side * 10, box.x - (side * box.width) / 2];
          return { path: `M${[x1, input.y]}H${x2}` };
        }),
    );
  return {
    width: Math.max(width, edge + 8),
    height: wordY + foot,
    rows: inner.map((row) => ({
      text: row % 2 ? `MLP ${(row - 1) / 2}` : `L${row / 2}`,
      y: yOf(row),
    })),
    ...{ boxes: placed, lines, dotted, words, wordY, isTurned },
  };
}

type Taken = { x: number; y: number; width: number };

/** Free place for a number on or beside a curve, from its middle to its ends. */
function freePlace(
  point: (t: number) => { x: number; y: number },
  taken: Taken[],
): { x: number; y: number } | null {
  const free = Array.from({ length: 15 }, (_, i) => 0.5 + (i % 2 ? -1 : 1) * 0.03 * i)
    .flatMap((t) => [0, -20, 20].map((aside) => ({ x: point(t).x + aside, y: point(t).y })))
    .find(({ x, y }) =>
      taken.every(
        (box) =>
          Math.abs(box.x - x) > (box.width + LABEL.width) / 2 ||
          Math.abs(box.y - y) > (BOX_HEIGHT + LABEL.height) / 2 - 3,
      ),
    );
  if (free) taken.push({ ...free, width: LABEL.width });
  return free ?? null;
}

/** Positions that have columns; of long texts those near a wire, with -1 for what is left out. */
function shownPositions(part: WiresPart, used: readonly number[], near: number): number[] {
  const count = part.tokens[0].length;
  const places = [...used, ...part.changed, part.position];
  const kept = Array.from({ length: count }, (_, i) => i).filter(
    (i) => (near > 0 && count <= LONG) || places.some((place) => Math.abs(i - place) <= near),
  );
  return kept.flatMap((at, i) => (at - (kept[i - 1] ?? -1) > 1 ? [-1, at] : [at]));
}
