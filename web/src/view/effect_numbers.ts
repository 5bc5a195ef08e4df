// What each head does to what the page is about: one number per head, and what it is of.

import { printed } from "../data/axis.ts";
import { type EffectTable, type Ranked, rank } from "../data/effects.ts";
import { points, signed } from "../data/number.ts";
import type { Session, Side } from "../state/session.ts";

export interface HeadEffect {
  /** Of one answer (in probability), of one over another (in log-odds), or of the text's vector. */
  readonly kind: "prediction" | "odds" | "turn";
  /** What changes, in words. */
  readonly what: string;
  /** Which of the candidates heads are ranked by. */
  readonly candidate: number;
  readonly all: readonly Ranked[];
  readonly format: (value: number) => string;
  readonly unit: string;
}

const known = new WeakMap<EffectTable, Map<string, HeadEffect>>();

/** Null where effects were not measured. */
export function headEffects(session: Session, side: Side): HeadEffect | null {
  const table = session.effectsOf(side);
  if (!table) return null;
  const last = table.kind === "turn" ? 0 : table.candidates.length - 1;
  const candidate = Math.min(session.candidate.value, last);
  const against = rivalOf(table, session.selection.value.against, candidate);
  const made = known.get(table) ?? new Map<string, HeadEffect>();
  known.set(table, made);
  const name = `${candidate}/${against}`;
  const effect = made.get(name) ?? effectOf(table, candidate, against, side);
  made.set(name, effect);
  return effect;
}

/** Which candidate the ranked one is held against; -1 for none. */
function rivalOf(table: EffectTable, against: string, candidate: number): number {
  if (table.kind === "turn" || !against.trim()) return -1;
  const found = table.candidates.findIndex((text) => text.trim() === against.trim());
  return found === candidate ? -1 : found;
}

function effectOf(
  table: EffectTable,
  candidate: number,
  against: number,
  { block }: Side,
): HeadEffect {
  const [layers, heads] = [block.layers.length, block.heads];
  if (table.kind === "turn") {
    const all = rank(layers, heads, table.turn);
    const format = (value: number) => value.toFixed(3);
    return { kind: "turn", what: "the text's vector turns by", candidate, all, format, unit: "" };
  }
  const { before, without } = table;
  const name = (index: number) => `“${printed(table.candidates[index])}”`;
  if (against < 0) {
    const change = (layerIndex: number, head: number) =>
      without(layerIndex, head, candidate) - before[candidate];
    const all = rank(layers, heads, change);
    const what = name(candidate);
    return { kind: "prediction", what, candidate, all, format: points, unit: "points" };
  }
  const usual = Math.log(before[candidate] / before[against]);
  const all = rank(layers, heads, (layerIndex, head) => {
    const one = (index: number) => without(layerIndex, head, index);
    return Math.log(one(candidate) / one(against)) - usual;
  });
  const what = `${name(candidate)} over ${name(against)}`;
  return { kind: "odds", what, candidate, all, format: signed, unit: "in log-odds" };
}
