// What every view of one explorer is given: data, selection, theme and tooltip.

import type { ExactRows } from "../data/exact.ts";
import { Lens } from "../data/lens.ts";
import type { Trace } from "../data/trace.ts";
import type { Theme } from "../paint/theme.ts";
import { blockOf } from "../state/selection.ts";
import type { Store } from "../state/store.ts";
import type { Tooltip } from "./tooltip.ts";

export class Scope {
  private lenses: { key: string; list: (Lens | undefined)[] } = { key: "", list: [] };
  theme: Theme;
  /** What is being searched for, in lower case; empty for nothing. */
  search = "";

  constructor(
    readonly traces: readonly Trace[],
    readonly store: Store,
    readonly exact: ExactRows,
    readonly tooltip: Tooltip,
    theme: Theme,
  ) {
    this.theme = theme;
  }

  /** The lens of a trace under the current filters. */
  lens(trace: number): Lens {
    const { block, unit, specials, pair } = this.store.selection;
    const key = [block, unit, specials, pair].join("/");
    if (this.lenses.key !== key) this.lenses = { key, list: [] };
    this.lenses.list[trace] ??= new Lens(
      blockOf(this.traces[trace], this.store.selection),
      this.store.selection,
    );
    return this.lenses.list[trace];
  }

  /** Whether both traces have the same visible rows and columns, so that they can be subtracted. */
  get comparable(): boolean {
    if (this.traces.length < 2) return false;
    const [first, second] = [this.lens(0), this.lens(1)];
    return (
      first.rows.length === second.rows.length &&
      first.columns.length === second.columns.length &&
      first.block.heads === second.block.heads &&
      first.block.layers.length === second.block.layers.length
    );
  }

  /** Which trace the single-trace views show. */
  get leading(): number {
    return this.traces.length > 1 && this.store.selection.compare === "second" ? 1 : 0;
  }
}
