// What each head does to what the page is about: one number per head, and what it is of.

import { printed } from "../data/axis.ts";
import { type Ranked, rank } from "../data/effects.ts";
import type { Session, Side } from "../state/session.ts";

export interface HeadEffect {
  readonly kind: "prediction" | "turn";
  /** What changes, in words. */
  readonly what: string;
  /** The answer that heads are ranked by, and which of the candidates it is. */
  readonly candidate: number;
  readonly all: readonly Ranked[];
}

const known = new WeakMap<object, Map<number, HeadEffect>>();

/** Null where effects were not measured. */
export function headEffects(session: Session, side: Side): HeadEffect | null {
  const table = session.effectsOf(side);
  if (!table) return null;
  const candidate = table.kind === "turn" ? 0 : session.candidate.value;
  const made = known.get(table) ?? new Map<number, HeadEffect>();
  known.set(table, made);
  const before = made.get(candidate);
  if (before) return before;
  const [layers, heads] = [side.block.layers.length, side.block.heads];
  const at = table.kind === "turn" ? 0 : Math.min(candidate, table.candidates.length - 1);
  const effect: HeadEffect =
    table.kind === "turn"
      ? {
          kind: "turn",
          what: "the text's vector turns by",
          candidate: 0,
          all: rank(layers, heads, table.turn),
        }
      : {
          kind: "prediction",
          what: `“${printed(table.candidates[at])}”`,
          candidate: at,
          all: rank(layers, heads, (l, h) => table.without(l, h, at) - table.before[at]),
        };
  made.set(candidate, effect);
  return effect;
}
