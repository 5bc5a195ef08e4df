// Which rows and columns are looked at: what the pointer is over, or else what is pinned.

import { type Entry, rowOf } from "../data/axis.ts";
import type { Selection } from "../state/selection.ts";
import type { Hover } from "../state/store.ts";

export interface Focus {
  /** Visible row or column indices; null where that side is free. */
  readonly rows: ReadonlySet<number> | null;
  readonly columns: ReadonlySet<number> | null;
}

export function focusOf(
  rows: readonly Entry[],
  columns: readonly Entry[],
  selection: Pick<Selection, "queries" | "keys">,
  hover: Hover,
): Focus {
  const hovered: Focus = {
    rows: visible(rows, hover.query === null ? [] : [hover.query]),
    columns: visible(columns, hover.key === null ? [] : [hover.key]),
  };
  if (hovered.rows || hovered.columns) return hovered;
  return { rows: visible(rows, selection.queries), columns: visible(columns, selection.keys) };
}

function visible(entries: readonly Entry[], positions: readonly number[]): Set<number> | null {
  const found = positions.map((position) => rowOf(entries, position)).filter((row) => row >= 0);
  return found.length > 0 ? new Set(found) : null;
}
