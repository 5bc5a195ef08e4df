// Block of attention under a filter: visible rows, columns and weights.

import { type Entry, entriesOf } from "./tokens.ts";
import type { Block } from "./trace.ts";

/** `rows × columns` weights, row after row; NaN where a weight is missing. */
export type Matrix = Readonly<{ rows: number; columns: number; weights: Float32Array }>;

export type Focus = Readonly<{ row: number; column: number }>;

export function rowWeights({ weights, columns }: Matrix, row: number): Float32Array {
  return weights.subarray(row * columns, (row + 1) * columns);
}

export function columnWeights({ weights, columns }: Matrix, column: number): Float32Array {
  return weights.filter((_, i) => i % columns === column);
}

/** Number of tokens above which a matrix replaces lines. */
export const LINES_LIMIT = 64;

export interface Filter {
  readonly specials: "shown" | "dimmed" | "hidden";
  readonly above: number;
  /** Number of strongest keys drawn per query; 0 for all. */
  readonly top: number;
  readonly pairs: "all" | "ab" | "ba" | "within";
  readonly unit: "tokens" | "words";
  /** Mean over the heads of a layer, or over all heads. */
  readonly combine: "off" | "layer" | "all";
}

export const NO_FILTER: Filter = {
  specials: "dimmed",
  above: 0.02,
  top: 0,
  pairs: "all",
  unit: "tokens",
  combine: "off",
};

/** Maximum weights in memory, over the matrices of a block: 200 MB. */
const CACHED = 5e7;

export class FilteredBlock {
  readonly rows: readonly Entry[];
  readonly columns: readonly Entry[];
  /** Columns over which rows are rescaled when special tokens are hidden. */
  private readonly whole: readonly Entry[];
  private readonly renormalize: boolean;
  private readonly isPlain: boolean;
  private readonly within: boolean;
  private readonly cache = new Map<string, Matrix>();

  constructor(
    readonly block: Block,
    filter: Pick<Filter, "unit" | "specials" | "pairs">,
  ) {
    const { unit, specials, pairs } = filter;
    const shown = (entry: Entry) => specials !== "hidden" || !entry.special;
    const rows = entriesOf(block.queryTokens, unit).filter(shown);
    const columns = entriesOf(block.keyTokens, unit).filter(shown);
    const crossing = block.name !== "cross" && (pairs === "ab" || pairs === "ba") ? pairs : null;
    this.rows = rows.filter((entry) => isSegment(entry, crossing?.[0]));
    this.columns = columns.filter((entry) => isSegment(entry, crossing?.[1]));
    this.within = pairs === "within" && block.name !== "cross";
    this.whole = columns;
    this.renormalize = specials === "hidden" && block.keyTokens.special.some(Boolean);
    this.isPlain =
      !this.within &&
      this.rows.length === block.queryTokens.texts.length &&
      this.columns.length === block.keyTokens.texts.length;
  }

  /** Visible weights of one head; null while they are unpacked. Attention to a word is summed,
   *  from a word averaged. */
  matrix(layerIndex: number, head: number): Matrix | null {
    const key = `${layerIndex}/${head}`;
    const cached = this.cache.get(key);
    const planes = this.block.planes[layerIndex]?.value;
    if (cached || !planes) return cached ?? null;
    const matrix = this.compute(planes.weights(head));
    const most = Math.max(1, Math.floor(CACHED / Math.max(1, matrix.weights.length)));
    if (this.cache.size >= most) this.cache.delete(this.cache.keys().next().value!);
    this.cache.set(key, matrix);
    return matrix;
  }

  private compute(weights: Float32Array): Matrix {
    const [rows, columns] = [this.rows.length, this.columns.length];
    if (this.isPlain) return { rows, columns, weights };
    const nKeys = this.block.keyTokens.texts.length;
    const visible = new Float32Array(rows * columns);
    this.rows.forEach((row, r) => {
      const share = (this.renormalize && total(weights, nKeys, row, this.whole)) || 1;
      this.columns.forEach((column, c) => {
        if (this.within && row.segment !== column.segment) return;
        visible[r * columns + c] = cell(weights, nKeys, row, column) / share;
      });
    });
    return { rows, columns, weights: visible };
  }
}

/** Mean of matrices of one shape; missing cells are ignored. */
export function meanOf(matrices: readonly Matrix[]): Matrix {
  const sums = new Float32Array(matrices[0].weights.length);
  const counts = new Uint32Array(sums.length);
  for (const { weights } of matrices) {
    for (let i = 0; i < sums.length; i++) {
      if (Number.isNaN(weights[i])) continue;
      sums[i] += weights[i];
      counts[i]++;
    }
  }
  return { ...matrices[0], weights: sums.map((sum, i) => sum / counts[i]) };
}

/** Mean weight of each column over the rows; missing cells count as 0. */
export function columnMeans({ rows, columns, weights }: Matrix): Float32Array {
  return Float32Array.from({ length: columns }, (_, c) => {
    let sum = 0;
    for (let r = 0; r < rows; r++) sum += weights[r * columns + c] || 0;
    return sum / Math.max(1, rows);
  });
}

export function difference(a: Matrix, b: Matrix): Matrix {
  return { ...a, weights: b.weights.map((weight, i) => weight - a.weights[i]) };
}

/** Merge the labels of A and B where they differ. */
export function bothNames(a: readonly Entry[], b: readonly Entry[]): Entry[] {
  return a.map((entry, i) => {
    const other = b[i].label;
    return entry.label === other ? entry : { ...entry, label: `${entry.label}/${other.trim()}` };
  });
}

function isSegment(entry: Entry, letter: string | undefined): boolean {
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
