// A head as a small picture: lines for short inputs, pooled heat for long ones.

import { COARSE, MISSING_CODE, type Planes } from "../data/codes.ts";
import type { Lens } from "../data/lens.ts";

const FAINTEST = 0.03;

/** Up to this many rows, a thumbnail shows lines. */
export const LINES_LIMIT = 64;

/** A head's visible weights, max-pooled to at most `size × size`. */
export interface Pooled {
  readonly rows: number;
  readonly columns: number;
  readonly weights: Float32Array;
}

/** Where each query and key goes in the pooled table; -1 for hidden ones. */
export interface Pooling {
  readonly rows: number;
  readonly columns: number;
  readonly rowOf: Int16Array;
  readonly columnOf: Int16Array;
  /** Keys that a row is renormalized over; null where it is not. */
  readonly shared: Uint8Array | null;
}

export function poolingOf(lens: Lens, size: number, specials: boolean): Pooling {
  const { block } = lens;
  const rows = Math.min(size, lens.rows.length);
  const columns = Math.min(size, lens.columns.length);
  const place = (entries: typeof lens.rows, count: number, n: number) => {
    const where = new Int16Array(n).fill(-1);
    entries.forEach((entry, index) => {
      const bin = Math.floor((index * count) / entries.length);
      for (const position of entry.positions) where[position] = bin;
    });
    return where;
  };
  return {
    rows,
    columns,
    rowOf: place(lens.rows, rows, block.queryTokens.texts.length),
    columnOf: place(lens.columns, columns, block.keyTokens.texts.length),
    shared: specials ? null : Uint8Array.from(block.keyTokens.special, (flag) => (flag ? 0 : 1)),
  };
}

/** The strongest weight of each cell: what a thumbnail can show of a long input. */
export function pool(planes: Planes, layerIndex: number, head: number, pooling: Pooling): Pooled {
  const { rows, columns, rowOf, columnOf, shared } = pooling;
  const weights = new Float32Array(rows * columns);
  const nKeys = columnOf.length;
  const codes = planes.coarse;
  const row = new Float32Array(columns);
  let at = planes.offset(layerIndex, head);
  for (let query = 0; query < rowOf.length; query++, at += nKeys) {
    const target = rowOf[query] * columns;
    if (target < 0) continue;
    row.fill(0);
    let sum = 0;
    for (let key = 0; key < nKeys; key++) {
      const code = codes[at + key];
      if (code === 0 || code === MISSING_CODE) continue;
      const weight = COARSE[code];
      if (shared?.[key]) sum += weight;
      const column = columnOf[key];
      if (column >= 0 && weight > row[column]) row[column] = weight;
    }
    const share = shared && sum > 0 ? 1 / sum : 1;
    for (let column = 0; column < columns; column++) {
      const weight = row[column] * share;
      if (weight > weights[target + column]) weights[target + column] = weight;
    }
  }
  return { rows, columns, weights };
}

/** Weights as lines between a left and a right edge: intensities of `size × size` pixels. */
export function drawLines(pooled: Pooled, size: number, intensities: Float32Array): void {
  intensities.fill(0);
  const { rows, columns, weights } = pooled;
  const longest = Math.max(rows, columns);
  const unit = size / longest;
  // Crowded lines get less ink each, so that the pattern stays a pattern.
  const density = Math.min(1, Math.max(0.3, unit / 1.6));
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const weight = weights[row * columns + column];
      if (weight < FAINTEST && weight > -FAINTEST) continue;
      const from = (row + 0.5) * unit - 0.5;
      const slope = ((column - row) * unit) / (size - 1);
      const ink =
        Math.sign(weight) *
        Math.min(1, Math.abs(weight) ** (0.8 / density ** 0.45)) *
        density ** 0.4;
      for (let x = 0; x < size; x++) {
        const y = from + slope * x;
        const upper = Math.floor(y);
        const part = y - upper;
        add(x, upper, ink * (1 - part));
        add(x, upper + 1, ink * part);
      }
    }
  }

  function add(x: number, y: number, ink: number): void {
    if (y < 0 || y >= size) return;
    const at = y * size + x;
    const now = intensities[at];
    intensities[at] = Math.abs(ink) > Math.abs(now) ? ink + now * 0.35 : now + ink * 0.35;
  }
}

/** Weights as heat, row after row from the top: intensities of `size × size` pixels. */
export function drawHeat(pooled: Pooled, size: number, intensities: Float32Array): void {
  const { rows, columns, weights } = pooled;
  for (let y = 0; y < size; y++) {
    const row = Math.floor((y * rows) / size) * columns;
    for (let x = 0; x < size; x++) {
      const weight = weights[row + Math.floor((x * columns) / size)];
      intensities[y * size + x] = Math.sign(weight) * Math.sqrt(Math.min(1, Math.abs(weight)));
    }
  }
}
