// Exact rows of attention: recomputed from queries and keys, or asked of the kernel.

import type { Block, Vectors } from "./trace.ts";

/** Asks whoever holds the trace for one row; null where nobody does. */
export type AskRow = (row: RowId) => Promise<Float32Array | null>;

export interface RowId {
  readonly trace: number;
  readonly block: string;
  readonly layer: number;
  readonly head: number;
  readonly query: number;
}

/** A recomputed row further than this from the recorded one is not the same attention. */
const AGREES = 0.006;

export class ExactRows {
  private readonly rows = new Map<string, Float32Array | "asked">();
  private readonly listeners = new Set<() => void>();

  constructor(private readonly ask: AskRow | null = null) {}

  /** The exact row if it is known by now; asks for it otherwise. */
  row(id: RowId): Float32Array | null {
    if (this.ask === null) return null;
    const key = Object.values(id).join("/");
    const known = this.rows.get(key);
    if (known) return known === "asked" ? null : known;
    this.rows.set(key, "asked");
    void this.ask(id).then((row) => {
      if (!row) return;
      this.rows.set(key, row);
      for (const listener of this.listeners) listener();
    });
    return null;
  }

  onArrival(listener: () => void): void {
    this.listeners.add(listener);
  }
}

/** The vectors of a block and where in them a layer is; null where the payload has none of it. */
export function vectorsOf(
  { vectors }: Block,
  layer: number,
): { vectors: Vectors; index: number } | null {
  const index = vectors?.layers.indexOf(layer) ?? -1;
  return vectors && index >= 0 ? { vectors, index } : null;
}

/** Scores of one query against every key: `scale · q·k`, or as recorded; NaN where masked. */
export function scoresOf(
  block: Block,
  layer: number,
  head: number,
  query: number,
): Float32Array | null {
  const found = vectorsOf(block, layer);
  if (!found) return null;
  const { vectors, index } = found;
  if (vectors.scores) return vectors.scores.vector(index, head, query);
  const dots = dotsOf(block, layer, head, query)!;
  const scale = vectors.scales[index];
  return dots.map((dot, key) => {
    const hidden = block.causal && key > query + dots.length - block.queryTokens.texts.length;
    return hidden || scale === null ? Number.NaN : dot * scale;
  });
}

/** `q·k` of one query with every key. */
export function dotsOf(
  block: Block,
  layer: number,
  head: number,
  query: number,
): Float32Array | null {
  const found = vectorsOf(block, layer);
  if (!found) return null;
  const { vectors, index } = found;
  const q = vectors.queries.vector(index, head, query);
  const group = vectors.groups[head];
  return Float32Array.from({ length: block.keyTokens.texts.length }, (_, key) => {
    const k = vectors.keys.vector(index, group, key);
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

/** The row recomputed from vectors, if it agrees with the recorded one. */
export function recomputedRow(
  block: Block,
  layer: number,
  head: number,
  query: number,
  recorded: Float32Array,
): Float32Array | null {
  const scores = scoresOf(block, layer, head, query);
  if (!scores) return null;
  const row = softmax(scores);
  return row.every((weight, key) => Math.abs(weight - recorded[key]) <= AGREES) ? row : null;
}
