// Holds the selection and what the pointer is over, and tells the views when either changes.

import type { Selection } from "./selection.ts";

/** What the pointer or the keyboard is over; never kept in the URL. */
export interface Hover {
  readonly query: number | null;
  readonly key: number | null;
  readonly head: { layer: number; head: number } | null;
}

export const NO_HOVER: Hover = { query: null, key: null, head: null };

export class Store {
  private readonly selectionListeners = new Set<(now: Selection, before: Selection) => void>();
  private readonly hoverListeners = new Set<(hover: Hover) => void>();
  hover: Hover = NO_HOVER;

  constructor(
    public selection: Selection,
    private readonly fitted: (selection: Selection) => Selection,
  ) {
    this.selection = fitted(selection);
  }

  update(changes: Partial<Selection>): void {
    const before = this.selection;
    this.selection = this.fitted({ ...before, ...changes });
    for (const listener of this.selectionListeners) listener(this.selection, before);
  }

  point(hover: Partial<Hover>): void {
    const next = { ...NO_HOVER, ...hover };
    const same =
      next.query === this.hover.query &&
      next.key === this.hover.key &&
      next.head?.layer === this.hover.head?.layer &&
      next.head?.head === this.hover.head?.head;
    if (same) return;
    this.hover = next;
    for (const listener of this.hoverListeners) listener(next);
  }

  onSelection(listener: (now: Selection, before: Selection) => void): void {
    this.selectionListeners.add(listener);
  }

  onHover(listener: (hover: Hover) => void): void {
    this.hoverListeners.add(listener);
  }
}
