// What each head does to what the page is about: one number per head, and what it is of.

import { printed } from "../data/axis.ts";
import { type EffectTable, type Ranked, rank } from "../data/effects.ts";
import type { Session, Side } from "../state/session.ts";

export interface HeadEffect {
  readonly kind: "prediction" | "turn";
  /** What changes, in words. */
  readonly what: string;
  /** Which of the candidates heads are ranked by. */
  readonly candidate: number;
  readonly all: readonly Ranked[];
}

const known = new WeakMap<EffectTable, Map<number, HeadEffect>>();

/** Null where effects were not measured. */
export function headEffects(session: Session, side: Side): HeadEffect | null {
  const table = session.effectsOf(side);
  if (!table) return null;
  const last = table.kind === "turn" ? 0 : table.candidates.length - 1;
  const candidate = Math.min(session.candidate.value, last);
  const made = known.get(table) ?? new Map<number, HeadEffect>();
  known.set(table, made);
  const effect = made.get(candidate) ?? effectOf(table, candidate, side);
  made.set(candidate, effect);
  return effect;
}

function effectOf(table: EffectTable, candidate: number, { block }: Side): HeadEffect {
  const [layers, heads] = [block.layers.length, block.heads];
  if (table.kind === "turn") {
    const all = rank(layers, heads, table.turn);
    return { kind: "turn", what: "the text's vector turns by", candidate, all };
  }
  const what = `“${printed(table.candidates[candidate])}”`;
  const change = (layerIndex: number, head: number) =>
    table.without(layerIndex, head, candidate) - table.before[candidate];
  return { kind: "prediction", what, candidate, all: rank(layers, heads, change) };
}
