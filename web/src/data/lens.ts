// What the filters leave of a block: visible rows and columns, and the weights between them.

import type { Selection } from "../state/selection.ts";
import { type Entry, entriesOf } from "./axis.ts";
import type { Block } from "./trace.ts";

/** `rows × columns` weights, row after row; NaN where a weight is missing. */
export interface Matrix {
  readonly rows: number;
  readonly columns: number;
  readonly weights: Float32Array;
}

const CACHED = 64;

export class Lens {
  readonly rows: readonly Entry[];
  readonly columns: readonly Entry[];
  /** Columns that a row's attention is shared among when special tokens are hidden. */
  private readonly whole: readonly Entry[];
  private readonly renormalize: boolean;
  private readonly isPlain: boolean;
  private readonly cache = new Map<string, Matrix>();

  constructor(
    readonly block: Block,
    selection: Pick<Selection, "unit" | "specials" | "pair">,
  ) {
    const [from, to] = selection.pair === "all" ? [null, null] : selection.pair;
    const shown = (entry: Entry) => selection.specials || !entry.special;
    const rows = entriesOf(block.queryTokens, selection.unit).filter(shown);
    const columns = entriesOf(block.keyTokens, selection.unit).filter(shown);
    this.rows = rows.filter((entry) => isSegment(entry, from));
    this.columns = columns.filter((entry) => isSegment(entry, to));
    this.whole = columns;
    this.renormalize = !selection.specials && block.keyTokens.special.some(Boolean);
    this.isPlain =
      this.rows.length === block.queryTokens.texts.length &&
      this.columns.length === block.keyTokens.texts.length;
  }

  /** The visible weights of one head: to a word summed, from a word averaged. */
  matrix(layerIndex: number, head: number): Matrix {
    const key = `${layerIndex}/${head}`;
    const known = this.cache.get(key);
    if (known) return known;
    const matrix = this.compute(this.block.planes.weights(layerIndex, head));
    if (this.cache.size >= CACHED) this.cache.delete(this.cache.keys().next().value!);
    this.cache.set(key, matrix);
    return matrix;
  }

  private compute(weights: Float32Array): Matrix {
    const [rows, columns] = [this.rows.length, this.columns.length];
    if (this.isPlain) return { rows, columns, weights };
    const nKeys = this.block.keyTokens.texts.length;
    const visible = new Float32Array(rows * columns);
    this.rows.forEach((row, r) => {
      const share = this.renormalize ? safe(total(weights, nKeys, row, this.whole)) : 1;
      this.columns.forEach((column, c) => {
        visible[r * columns + c] = cell(weights, nKeys, row, column) / share;
      });
    });
    return { rows, columns, weights: visible };
  }
}

/** Element by element, the mean or the largest of several matrices; missing cells are left out. */
export function combine(matrices: Iterable<Matrix>, how: "mean" | "max"): Matrix {
  let shape: Matrix | null = null;
  let kept = new Float32Array(0);
  let counts = new Uint32Array(0);
  for (const matrix of matrices) {
    if (shape === null) {
      shape = matrix;
      kept = new Float32Array(matrix.weights.length);
      counts = new Uint32Array(matrix.weights.length);
    }
    for (let i = 0; i < kept.length; i++) {
      const weight = matrix.weights[i];
      if (Number.isNaN(weight)) continue;
      kept[i] = how === "mean" ? kept[i] + weight : Math.max(kept[i], weight);
      counts[i]++;
    }
  }
  const weights = kept.map((weight, i) =>
    counts[i] === 0 ? Number.NaN : how === "mean" ? weight / counts[i] : weight,
  );
  return { rows: shape?.rows ?? 0, columns: shape?.columns ?? 0, weights };
}

/** `second − first`, or null where they are not of one shape. */
export function difference(first: Matrix, second: Matrix): Matrix | null {
  if (first.rows !== second.rows || first.columns !== second.columns) return null;
  const weights = second.weights.map((weight, i) => weight - first.weights[i]);
  return { rows: first.rows, columns: first.columns, weights };
}

function isSegment(entry: Entry, letter: string | null | undefined): boolean {
  return !letter || entry.segment === (letter === "a" ? 0 : 1);
}

function cell(weights: Float32Array, nKeys: number, row: Entry, column: Entry): number {
  let sum = 0;
  for (const query of row.positions) {
    for (const key of column.positions) sum += weights[query * nKeys + key];
  }
  return sum / row.positions.length;
}

function total(
  weights: Float32Array,
  nKeys: number,
  row: Entry,
  columns: readonly Entry[],
): number {
  let sum = 0;
  for (const column of columns) {
    const weight = cell(weights, nKeys, row, column);
    if (!Number.isNaN(weight)) sum += weight;
  }
  return sum;
}

function safe(sum: number): number {
  return sum > 0 ? sum : 1;
}
