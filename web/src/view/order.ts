// The order in which all heads stand: as in the model, or by what they are colored by.

import { ROLES } from "../paint/roles.ts";
import type { Session, Side } from "../state/session.ts";

export interface Spot {
  readonly layerIndex: number;
  readonly head: number;
}

/** A number for each head by what the grid is colored by; null where it has none. */
export type Share = ((layerIndex: number, head: number) => number | null) | null;

/** All places of the table, row after row; largest first where heads are sorted. */
export function spotsOf(session: Session, side: Side, share: Share): Spot[] {
  const { block } = side;
  const spots = block.layers.flatMap((_, layerIndex) =>
    Array.from({ length: block.heads }, (_, head) => ({ layerIndex, head })),
  );
  if (!session.selection.value.sorted) return spots;
  const roles = session.roles(side);
  const size = ({ layerIndex, head }: Spot): number => {
    if (!block.has(layerIndex, head)) return Number.NEGATIVE_INFINITY;
    if (share) return Math.abs(share(layerIndex, head) ?? -1);
    const { role, share: own } = roles[layerIndex][head];
    const place = ROLES.findIndex(({ id }) => id === (role ?? "unnamed"));
    return (own ?? 0) - 2 * place;
  };
  const sizes = new Map(spots.map((spot) => [spot, size(spot)]));
  return [...spots].sort((a, b) => sizes.get(b)! - sizes.get(a)!);
}
