// Attention scores, and exact rows: recomputed from queries and keys, or requested.

import { type Block, Lazy, type Vectors } from "./trace.ts";

/** Request one row from the backend; null if it lost the trace. */
export type RequestRow = (row: RowId) => Promise<Float32Array | null>;

interface RowId {
  readonly trace: number;
  readonly block: string;
  readonly layer: number;
  readonly head: number;
  readonly query: number;
}

/** Largest difference between a recomputed and a recorded weight. */
const MAX_DIFFERENCE = 0.006;

export class ExactRows {
  private readonly rows = new Map<string, Lazy<Float32Array | null>>();

  constructor(private readonly request: RequestRow | null = null) {}

  /** Exact row, or null until it arrives. */
  row(id: RowId): Float32Array | null {
    const { request } = this;
    if (request === null) return null;
    const key = Object.values(id).join("/");
    const row = this.rows.get(key) ?? new Lazy(() => request(id));
    this.rows.set(key, row);
    return row.value;
  }
}

/** Scores of one query against every key, recorded or `scale · q·k`; NaN where masked. */
export function scoresOf(
  block: Block,
  vectors: Vectors,
  head: number,
  query: number,
): Float32Array {
  if (vectors.scores) return vectors.scores.vector(head, query);
  const dots = dotsOf(vectors, head, query, block.keyTokens.texts.length);
  return dots.map((dot, key) => {
    const hidden = block.causal && key > query + dots.length - block.queryTokens.texts.length;
    return hidden || vectors.scale === null ? Number.NaN : dot * vectors.scale;
  });
}

export function dotsOf(vectors: Vectors, head: number, query: number, keys: number): Float32Array {
  const q = vectors.queries.vector(head, query);
  const group = vectors.groups[head];
  return Float32Array.from({ length: keys }, (_, key) => {
    const k = vectors.keys.vector(group, key);
    let sum = 0;
    for (let i = 0; i < q.length; i++) sum += q[i] * k[i];
    return sum;
  });
}

export function softmax(scores: Float32Array): Float32Array {
  let largest = Number.NEGATIVE_INFINITY;
  for (const score of scores) if (score > largest) largest = score;
  const powers = scores.map((score) => (Number.isNaN(score) ? 0 : Math.exp(score - largest)));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}

/** Softmax of the scores, or null if it differs from the recorded row (sink logits). */
export function recomputedRow(scores: Float32Array, recorded: Float32Array): Float32Array | null {
  const row = softmax(scores);
  return row.every((weight, key) => Math.abs(weight - recorded[key]) <= MAX_DIFFERENCE)
    ? row
    : null;
}
