// Query, key and value vectors of one query: products, scores and contributions of neurons.

import { dotsOf, recomputedRow, scoresOf } from "./exact_rows.ts";
import type { Block, Vectors } from "./trace.ts";

export interface Neurons {
  readonly query: number;
  readonly q: Float32Array;
  /** Vector of each key, and its product with q, neuron by neuron. */
  readonly keys: readonly Float32Array[];
  readonly products: readonly Float32Array[];
  readonly dots: Float32Array;
  /** Factor on q·k in the score; null if it is not a plain factor. */
  readonly scale: number | null;
  /** Input of the softmax; NaN where the key is masked. */
  readonly scores: Float32Array;
  /** `score − scale · q·k`, where the model adds a bias (ALiBi, relative positions). */
  readonly bias: Float32Array | null;
  readonly weights: Float32Array;
  /** Whether the softmax of the scores equals the recorded attention (false with sink logits). */
  readonly isSoftmax: boolean;
  readonly values: readonly Float32Array[] | null;
  readonly output: Float32Array | null;
  /** Mean of `q × k` over attended keys (weighted) minus that over visible keys, per neuron. */
  readonly contribution: Float32Array;
}

/** Compute the vectors of one query; `recorded` is its captured row of attention. */
export function neuronsOf(
  block: Block,
  vectors: Vectors,
  head: number,
  query: number,
  recorded: Float32Array,
): Neurons {
  const group = vectors.groups[head];
  const n = block.keyTokens.texts.length;
  const q = vectors.queries.vector(head, query);
  const keys = Array.from({ length: n }, (_, key) => vectors.keys.vector(group, key));
  const products = keys.map((k) => k.map((value, i) => value * q[i]));
  const dots = dotsOf(vectors, head, query, n);
  const scores = scoresOf(block, vectors, head, query);
  const { scale, values } = vectors;
  const recomputed = recomputedRow(scores, recorded);
  const weights = recomputed ?? recorded;
  const rows = values && Array.from({ length: n }, (_, key) => values.vector(group, key));
  return {
    query,
    q,
    keys,
    products,
    dots,
    scale,
    scores,
    bias: vectors.scores && scores.map((score, key) => score - (scale ?? 1) * dots[key]),
    weights,
    isSoftmax: recomputed !== null,
    values: rows,
    output: vectors.outputs?.vector(head, query) ?? (rows && weightedSum(rows, weights)),
    contribution: contributionOf(products, weights, scores),
  };
}

function weightedSum(rows: readonly Float32Array[], weights: Float32Array): Float32Array {
  const sum = new Float32Array(rows[0]?.length ?? 0);
  rows.forEach((row, key) => {
    const weight = weights[key] || 0;
    for (let i = 0; i < sum.length; i++) sum[i] += weight * row[i];
  });
  return sum;
}

function contributionOf(
  products: readonly Float32Array[],
  weights: Float32Array,
  scores: Float32Array,
): Float32Array {
  const attended = weightedSum(products, weights);
  const seen = scores.map((score) => (Number.isNaN(score) ? 0 : 1));
  const count = seen.reduce((sum, flag) => sum + flag, 0) || 1;
  const mean = weightedSum(products, seen);
  return attended.map((value, i) => value - mean[i] / count);
}

export function neuronOrder(neurons: Neurons, order: "number" | "contribution"): number[] {
  const numbers = Array.from(neurons.q.keys());
  if (order === "number") return numbers;
  return numbers.sort((a, b) => neurons.contribution[b] - neurons.contribution[a] || a - b);
}

/** 99th percentile of the absolute values, at which colors saturate. */
export function saturation(vectors: readonly Float32Array[]): number {
  const total = vectors.reduce((sum, vector) => sum + vector.length, 0);
  const step = Math.max(1, Math.floor(total / 4096));
  const sizes: number[] = [];
  let index = 0;
  for (const vector of vectors) {
    for (const value of vector) {
      if (index++ % step === 0 && Number.isFinite(value)) sizes.push(Math.abs(value));
    }
  }
  sizes.sort((a, b) => a - b);
  return sizes[Math.floor((sizes.length - 1) * 0.99)] || 1;
}
