// All heads by a number: what colors them, and the order in which they stand.

import type { Spot } from "../data/effects.ts";
import { ROLES } from "../paint/roles.ts";
import type { Session, Side } from "../state/session.ts";
import { headEffects } from "./effect_numbers.ts";

/** A statistic of all heads, and its ends. */
export function rangeOf(side: Side, color: "spread" | "distance") {
  const table = side.block.statistics[color === "spread" ? "entropy" : "distance"] ?? [];
  const values = table.flat().filter((value) => value !== null);
  return { table, low: Math.min(...values), high: Math.max(...values) };
}

/** A number from 0 to 1 (or −1 to 1) for each head by what the grid is colored by, null for heads
 *  without one; null where roles color it. */
export type Share = ((layerIndex: number, head: number) => number | null) | null;

export function shareOf(session: Session, side: Side): Share {
  const { color } = session.selection.value;
  if (color === "role") return null;
  if (color === "effect") {
    const effects = headEffects(session, side);
    if (!effects) return () => null;
    const most = Math.max(1e-9, ...effects.all.map(({ value }) => Math.abs(value)));
    const known = new Map(effects.all.map((one) => [`${one.layerIndex}/${one.head}`, one.value]));
    return (layerIndex, head) => {
      const value = known.get(`${layerIndex}/${head}`);
      return value === undefined ? null : value / most;
    };
  }
  const { low, high, table } = rangeOf(side, color);
  return (layerIndex, head) => {
    const value = table[layerIndex]?.[head] ?? null;
    return value === null ? null : (value - low) / Math.max(high - low, 1e-9);
  };
}

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
  return spots.sort((a, b) => sizes.get(b)! - sizes.get(a)!);
}
