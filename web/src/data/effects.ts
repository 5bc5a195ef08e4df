// Effects of ablating each head on the output, stored with a trace or measured later.

import type { EffectsPart } from "../../generated/payload.ts";
import type { ReadBuffer } from "./decode.ts";
import { openNumbers } from "./trace.ts";

/** Effects on a prediction (probabilities) or on the text's vector, one per layer and head. */
export type EffectTable =
  | {
      readonly kind: "prediction";
      readonly position: number | null;
      readonly candidates: readonly string[];
      readonly before: readonly number[];
      /** Probability of a candidate without the head; NaN if it was not measured. */
      without(layerIndex: number, head: number, candidate: number): number;
    }
  | {
      readonly kind: "cosine_distance";
      readonly pooling: string;
      distance(layerIndex: number, head: number): number;
      readonly similarity: {
        readonly before: number;
        after(layerIndex: number, head: number): number;
      } | null;
    };

export async function openEffects(
  part: EffectsPart | null,
  readBuffer: ReadBuffer,
): Promise<EffectTable | null> {
  if (!part) return null;
  const cell = (table: (number | null)[][]) => (layerIndex: number, head: number) =>
    table[layerIndex]?.[head] ?? Number.NaN;
  if (part.kind === "cosine_distance") {
    const { pooling, cosine_distance: distance, cosine_similarity: similarity } = part;
    const shown = similarity && { before: similarity.before, after: cell(similarity.after) };
    return { kind: "cosine_distance", pooling, distance: cell(distance), similarity: shown };
  }
  const { position, candidates } = part;
  const numbers = await openNumbers(part.after, readBuffer);
  return {
    kind: "prediction",
    position,
    candidates,
    before: part.before.map(Math.exp),
    without: (layerIndex, head, candidate) => Math.exp(numbers.vector(layerIndex, head)[candidate]),
  };
}

export type HeadIndex = Readonly<{ layerIndex: number; head: number }>;

export type RankedHead = HeadIndex & Readonly<{ value: number }>;

/** Index of a head in a list, or -1. */
export function indexOfHead(list: readonly HeadIndex[], layerIndex: number, head: number): number {
  return list.findIndex((other) => other.layerIndex === layerIndex && other.head === head);
}

/** Sort heads by the size of a value, largest first; heads without a value are dropped. */
export function rank(
  layers: number,
  heads: number,
  value: (layerIndex: number, head: number) => number,
): RankedHead[] {
  const all: RankedHead[] = [];
  for (let layerIndex = 0; layerIndex < layers; layerIndex++) {
    for (let head = 0; head < heads; head++) {
      const effect = value(layerIndex, head);
      if (Number.isFinite(effect)) all.push({ layerIndex, head, value: effect });
    }
  }
  return all.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
}
