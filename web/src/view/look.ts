// How the chosen head looks: its role, and the color that goes with it.

import type { Role } from "../data/payload.ts";
import type { Rgb } from "../paint/color.ts";
import { type RoleLook, roleColor, roleLook } from "../paint/roles.ts";
import type { HeadId } from "../state/selection.ts";
import type { Session, Side } from "../state/session.ts";

const NONE: Role = { role: null, share: null, queries: 0 };

/** What a head does in this text, whatever it is named after. */
export function roleHere(side: Side, id: HeadId): Role {
  const { heads, here } = side.baseLens.block.roles;
  return (here ?? heads)[layerIndex(side, id)]?.[id.head] ?? NONE;
}

/** What a head does over the corpus, where that is known and not what it does in this text. */
export function otherRole(side: Side, id: HeadId): Role | null {
  const { heads, here } = side.baseLens.block.roles;
  const over = here && heads[layerIndex(side, id)]?.[id.head];
  return over && over.role !== roleHere(side, id).role ? over : null;
}

/** The names of a head: one, or both where the corpus and this text differ. */
export function roleWords(side: Side, id: HeadId): string {
  const here = roleLook(roleHere(side, id).role).name;
  const over = otherRole(side, id);
  return over ? `${roleLook(over.role).name} over the corpus; here: ${here}` : here;
}

export function lookAt(session: Session, side: Side, id: HeadId): RoleLook {
  return roleLook(session.roles(side)[layerIndex(side, id)]?.[id.head]?.role ?? null);
}

export function headColor(session: Session, side: Side): Rgb {
  const look = lookAt(session, side, session.selection.value);
  return roleColor(look, session.theme.value.scheme);
}

function layerIndex(side: Side, { layer }: HeadId): number {
  return Math.max(0, side.block.layers.indexOf(layer));
}
