// Which query–key pairs are drawn, strongest last so that they lie on top.

import type { Matrix } from "../data/lens.ts";

export interface Links {
  readonly count: number;
  readonly rows: Uint16Array;
  readonly columns: Uint16Array;
  readonly weights: Float32Array;
  /** The smallest weight that is drawn. */
  readonly floor: number;
}

export interface LinkFilter {
  readonly threshold: number;
  /** Strongest keys of each query; 0 for all. */
  readonly top: number;
  /** Only these rows or columns; null for all. */
  readonly rows: ReadonlySet<number> | null;
  readonly columns: ReadonlySet<number> | null;
  /** How many links may be drawn before weak ones are left out. */
  readonly budget: number;
}

/** Fainter than this, a line cannot be seen. */
const FAINTEST = 0.008;
const BUCKETS = 128;

export function linksOf(matrix: Matrix, filter: LinkFilter): Links {
  const { columns, weights } = matrix;
  const visible = filter.rows ? [...filter.rows] : Array.from({ length: matrix.rows }, (_, r) => r);
  const counts = new Uint32Array(BUCKETS + 1);
  const faintest = Math.max(FAINTEST, filter.threshold);
  const floors = new Float32Array(matrix.rows).fill(faintest);
  for (const row of visible) {
    if (filter.top > 0)
      floors[row] = Math.max(faintest, topFloor(weights, row, columns, filter.top));
    forRow(row, faintest, (_, weight) => counts[bucket(weight)]++);
  }
  let first = BUCKETS;
  for (let sum = 0; first >= 0; first--) {
    sum += counts[first];
    if (sum > filter.budget) break;
  }
  const floor = Math.max(faintest, (first + 1) / BUCKETS);
  return sorted(Math.max(first + 1, 0), first < 0 ? faintest : floor);

  function forRow(row: number, least: number, use: (column: number, weight: number) => void): void {
    const start = row * columns;
    const bound = Math.max(least, floors[row]);
    for (let column = 0; column < columns; column++) {
      const weight = weights[start + column];
      const size = weight < 0 ? -weight : weight;
      if (size >= bound && (filter.columns === null || filter.columns.has(column)))
        use(column, weight);
    }
  }

  function sorted(firstBucket: number, least: number): Links {
    const starts = new Uint32Array(BUCKETS + 2);
    for (let b = firstBucket; b <= BUCKETS; b++) starts[b + 1] = starts[b] + counts[b];
    const count = starts[BUCKETS + 1];
    const links = {
      count,
      rows: new Uint16Array(count),
      columns: new Uint16Array(count),
      weights: new Float32Array(count),
      floor: least,
    };
    for (const row of visible) {
      forRow(row, faintest, (column, weight) => {
        const b = bucket(weight);
        if (b < firstBucket) return;
        const at = starts[b]++;
        links.rows[at] = row;
        links.columns[at] = column;
        links.weights[at] = weight;
      });
    }
    return links;
  }
}

function bucket(weight: number): number {
  return Math.min(BUCKETS, Math.floor(Math.abs(weight) * BUCKETS));
}

/** The `top`-th largest size in a row. */
function topFloor(weights: Float32Array, row: number, columns: number, top: number): number {
  const sizes = weights.slice(row * columns, (row + 1) * columns).map(Math.abs);
  sizes.sort();
  let last = sizes.length;
  while (last > 0 && Number.isNaN(sizes[last - 1])) last--;
  return sizes[Math.max(0, last - top)] ?? 0;
}

/** How a weight looks as a line: independent of how many heads are shown. */
export function lineStyle(weight: number, signed = false): { opacity: number; width: number } {
  const size = Math.min(1, Math.abs(weight));
  // Differences are small numbers that matter: they get more ink.
  return { opacity: Math.min(1, 0.03 + size ** (signed ? 0.45 : 0.72)), width: 0.8 + 1.7 * size };
}
