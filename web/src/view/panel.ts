// One trace (or the difference of two) as the head view shows it: lens, series, colors, precision.

import { type Entry, printed } from "../data/axis.ts";
import { recomputedRow } from "../data/exact.ts";
import type { Lens } from "../data/lens.ts";
import type { Precision } from "../data/number.ts";
import { differences, type Series, seriesOf } from "../data/series.ts";
import type { Painted } from "../layout/head.ts";
import type { Scope } from "./scope.ts";

export class Panel {
  lens: Lens;
  /** Visible tokens; in a difference, those of both traces where they differ. */
  queries: readonly Entry[] = [];
  keys: readonly Entry[] = [];
  series: readonly Painted[] = [];
  precision: Precision = "fine";

  /** `which`: index of the trace, or "difference" for second − first. */
  constructor(
    private readonly scope: Scope,
    readonly which: number | "difference",
  ) {
    this.lens = scope.lens(this.trace);
    this.refresh();
  }

  get trace(): number {
    return this.which === "difference" ? 0 : this.which;
  }

  get title(): string {
    const { traces } = this.scope;
    return this.which === "difference" ? "second − first" : traces[this.which].title;
  }

  private merged(side: (lens: Lens) => readonly Entry[]): readonly Entry[] {
    const own = side(this.lens);
    if (this.which !== "difference") return own;
    const other = side(this.scope.lens(1));
    if (other.length !== own.length) return own;
    return own.map((entry, i) =>
      entry.label === other[i].label
        ? entry
        : { ...entry, label: `${printed(entry.label)} ⏐ ${printed(other[i].label)}` },
    );
  }

  /** Take up the current selection. */
  refresh(): void {
    const { scope } = this;
    const { selection } = scope.store;
    this.lens = scope.lens(this.trace);
    this.queries = this.merged((lens) => lens.rows);
    this.keys = this.merged((lens) => lens.columns);
    let series: Series[] = seriesOf(this.lens, selection);
    if (this.which === "difference") {
      series = differences(series, seriesOf(scope.lens(1), selection)) ?? [];
    }
    const colors = scope.theme.heads(this.lens.block.heads);
    this.series = series.map((one) => ({
      ...one,
      color: one.head === null ? scope.theme.rgb.accent : colors[one.head],
    }));
    this.precision = this.lens.block.planes.fine ? "fine" : "coarse";
  }

  /** A head's row as exactly as it can be known; null where the planes are all there is. */
  exactRow(series: Series, row: number): Float32Array | null {
    const { selection } = this.scope.store;
    const { head } = series;
    const isPlain =
      head !== null &&
      selection.combine === "each" &&
      selection.unit === "token" &&
      selection.specials;
    if (!isPlain || series.signed || selection.pair !== "all") return null;
    const { block } = this.lens;
    const id = { trace: this.trace, block: block.name, layer: selection.layer, head, query: row };
    const asked = this.scope.exact.row(id);
    if (asked) return asked;
    if (block.planes.fine) return null;
    const n = series.matrix.columns;
    const recorded = series.matrix.weights.subarray(row * n, (row + 1) * n);
    return recomputedRow(block, selection.layer, head, row, recorded);
  }
}
