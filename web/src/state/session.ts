// Session of one explorer: its traces, and the rows and weights that views show of them.

import { computed, type ReadonlySignal, signal } from "@preact/signals";
import type { Header, RolePart, WiresPart } from "../../generated/payload.ts";
import type { Abilities, Backend } from "../data/backend.ts";
import {
  FilteredBlock,
  type Focus,
  LINES_LIMIT,
  type Matrix,
  meanOf,
  rowWeights,
} from "../data/filtered_block.ts";
import type { Precision } from "../data/format.ts";
import { rowOf } from "../data/tokens.ts";
import type { Block, Lazy, Trace, Vectors } from "../data/trace.ts";
import { type Scheme, type Theme, themeOf } from "../paint/theme.ts";
import { Edits } from "./edits.ts";
import { Exercise } from "./exercise.ts";
import { Requests } from "./requests.ts";
import { blockOf, type HeadId, headCode, isSameHead, TABS, type Tab } from "./selection.ts";
import { SelectionStore } from "./selection_store.ts";

/** One input; A or B where there are two. */
export interface Side {
  readonly trace: number;
  readonly letter: string;
  readonly base: Trace;
  /** Trace of the edited model; `base` without edits. */
  readonly now: Trace;
  readonly block: Block;
  readonly filtered: FilteredBlock;
  readonly baseFiltered: FilteredBlock;
}

type Layout = "wide" | "middle" | "phone";

export class Session {
  readonly store: SelectionStore;
  readonly selection: SelectionStore["selection"];
  readonly update: SelectionStore["update"];
  readonly point: SelectionStore["point"];
  readonly requests: Requests;
  readonly edits: Edits;
  readonly size = signal({ width: 1440, height: 900 });
  readonly system = signal<Scheme>("light");
  /** Index of the prediction that heads are ranked by. */
  readonly candidate = signal(0);
  /** Sampling that the listed answers are shown under; `k` 0 for all words. */
  readonly sampling = signal({ temperature: 1, k: 0 });
  readonly exercise: Exercise;
  private readonly means = new WeakMap<FilteredBlock, { names: string; mean: Matrix }>();

  constructor(
    readonly header: Header,
    readonly traces: readonly Trace[],
    readonly backend: Backend | null,
    fragment: string,
  ) {
    this.store = new SelectionStore(header, traces, backend !== null, fragment);
    this.selection = this.store.selection;
    this.update = this.store.update;
    this.point = this.store.point;
    this.requests = new Requests(backend);
    this.edits = new Edits(this.store, this.requests);
    this.exercise = new Exercise(header, traces, this.store);
    this.ask();
  }

  /** Open an address: a selection, or a question of the exercise. */
  open(fragment: string): void {
    this.store.open(fragment);
    this.ask();
  }

  private ask(): void {
    const { exercise } = this.selection.peek();
    if (exercise > 0) this.exercise.open(exercise);
  }

  readonly layout: ReadonlySignal<Layout> = computed(() => {
    const { width } = this.size.value;
    return width <= 600 ? "phone" : width <= 1100 ? "middle" : "wide";
  });

  readonly theme: ReadonlySignal<Theme> = computed(() => {
    const { theme } = this.selection.value;
    return themeOf(theme === "auto" ? this.system.value : theme);
  });

  private readonly example = computed(() => this.selection.value.example);
  private readonly blockName = computed(() => this.selection.value.block);
  private readonly filterKey = computed(() => {
    const { unit, specials, pairs } = this.selection.value.filter;
    return `${unit}/${specials}/${pairs}`;
  });

  readonly sides: ReadonlySignal<readonly Side[]> = computed(() => {
    this.filterKey.value;
    const { filter } = this.selection.peek();
    const { traces } = this.header.examples[this.example.value] ?? this.header.examples[0];
    return traces.map((trace, i) => {
      const base = this.traces[trace];
      const now = this.edits.traces.value?.[trace] ?? base;
      const [block, before] = [now, base].map((trace) => blockOf(trace, this.blockName.value));
      const filtered = new FilteredBlock(block, filter);
      const baseFiltered = before === block ? filtered : new FilteredBlock(before, filter);
      const letter = traces.length > 1 ? "AB"[i] : "";
      return { trace, letter, base, now, block, filtered, baseFiltered };
    });
  });

  readonly shown: ReadonlySignal<readonly Side[]> = computed(() => {
    const sides = this.sides.value;
    if (this.layout.value === "wide" || sides.length === 1) return sides;
    return [sides[this.selection.value.side] ?? sides[0]];
  });

  readonly lead: ReadonlySignal<Side> = computed(
    () => this.sides.value[this.selection.value.side] ?? this.sides.value[0],
  );

  readonly tab: ReadonlySignal<Tab> = computed(() => {
    const { tab } = this.selection.value;
    const { rows, columns } = this.sides.value[0].filtered;
    const usual = Math.max(rows.length, columns.length) > LINES_LIMIT ? "matrix" : "lines";
    return tab !== null && this.tabs.value.includes(tab) ? tab : usual;
  });

  /** Tabs of this page on this screen. */
  readonly tabs: ReadonlySignal<readonly Tab[]> = computed(() =>
    TABS.filter((name) => {
      if (name === "wires") return this.wires.value !== null || this.backend?.wires !== undefined;
      if (name === "evidence") return !this.exercise.isHidden.value;
      return name !== "effect" || this.layout.value === "middle";
    }),
  );

  /** Wires that were measured now, else those stored in the page. */
  readonly wires: ReadonlySignal<WiresPart | null> = computed(
    () => this.requests.wires.value ?? this.header.wires ?? null,
  );

  layerIndex(block: Block): number {
    return Math.max(0, block.layers.indexOf(this.selection.value.layer));
  }

  /** Roles of an input's heads, over the corpus or in this text. */
  roles(side: Side): readonly (readonly RolePart[])[] {
    const { heads, here: inText } = side.baseFiltered.block.roles;
    return (this.selection.value.named === "text" && inText) || heads;
  }

  /** Map a position of the first input to a side; the last position maps to the last. */
  place(side: Side, position: number | null, axis: "query" | "key"): number | null {
    if (position === null) return null;
    const count = ({ block }: Side) =>
      (axis === "query" ? block.queryTokens : block.keyTokens).texts.length;
    const [first, last] = [count(this.sides.value[0]), count(side) - 1];
    return position === first - 1 ? last : Math.min(position, last);
  }

  /** Drawn weights of a head, or of the mean over heads; null while they are unpacked. A head that
   *  is off is drawn as it was. */
  matrix(side: Side, id: HeadId = this.selection.value): Matrix | null {
    const { layers } = side.block;
    const filtered = this.edits.isOff(id) ? side.baseFiltered : side.filtered;
    const heads = this.combined(side);
    if (!heads) return filtered.matrix(Math.max(0, layers.indexOf(id.layer)), id.head);
    const names = heads.map(headCode).join();
    const cached = this.means.get(filtered);
    if (cached?.names === names) return cached.mean;
    const all = heads.map(({ layer, head }) => filtered.matrix(layers.indexOf(layer), head));
    if (!all.every((matrix) => matrix !== null)) return null;
    const mean = meanOf(all);
    this.means.set(filtered, { names, mean });
    return mean;
  }

  /** Heads whose mean is shown; null for a single head. */
  combined({ block }: Side): readonly HeadId[] | null {
    const { layer, filter, mean } = this.selection.value;
    if (filter.combine === "off") return mean && this.several ? this.several : null;
    const layers = filter.combine === "layer" ? [layer] : block.layers;
    const heads = layers.flatMap((number) =>
      Array.from({ length: block.heads }, (_, h) => ({ layer: number, head: h })).filter((id) =>
        block.has(block.layers.indexOf(id.layer), id.head),
      ),
    );
    return heads.length > 0 ? heads : null;
  }

  /** The chosen head and those kept with it; null for a single head. */
  get several(): readonly HeadId[] | null {
    const { layer, head, also } = this.selection.value;
    const others = also.filter((id) => !isSameHead(id, { layer, head }));
    return others.length > 0 ? [{ layer, head }, ...others] : null;
  }

  /** Heads drawn over one another, each in its hue; null for one head or a mean. */
  get overlaid(): readonly HeadId[] | null {
    const { mean, filter } = this.selection.value;
    return mean || filter.combine !== "off" ? null : this.several;
  }

  /** Weights of one head, whatever else is drawn. */
  single(side: Side, { layer, head }: HeadId): Matrix | null {
    const filtered = this.edits.isOff({ layer, head }) ? side.baseFiltered : side.filtered;
    return filtered.matrix(Math.max(0, side.block.layers.indexOf(layer)), head);
  }

  /** What the backend can do. */
  get can(): Abilities {
    return this.requests.can.value;
  }

  /** Whether heads can be switched off: by running the model, or from stored runs. */
  canSwitch(side: Side): boolean {
    return this.can.off || this.requests.effectsOf(side)?.kind === "prediction";
  }

  /** Measure the effect of every head on the prediction at a position, the chosen layer first. */
  measure(side: Side, position: number | null): void {
    void this.requests.measure(side, position, this.selection.peek().layer);
  }

  /** Show a head, or guess it; a phone switches to its pane. */
  choose({ layer, head }: HeadId): void {
    if (this.exercise.isHidden.peek()) this.exercise.guess.value = { layer, head };
    this.update({ layer, head, ...(this.layout.peek() === "phone" ? { pane: 2 } : {}) });
  }

  /** Whether the matrices of two inputs have equal shapes. */
  get hasDifference(): boolean {
    const [a, b] = this.sides.value;
    return (
      b !== undefined &&
      a.filtered.rows.length === b.filtered.rows.length &&
      a.filtered.columns.length === b.filtered.columns.length
    );
  }

  /** Blocks whose attention is compared: of two inputs, or before and after an edit. */
  get compared(): readonly [Block, Block] | null {
    const [a, b] = this.sides.value;
    if (b) return this.hasDifference ? [a.block, b.block] : null;
    const before = a.baseFiltered.block;
    return before === a.block ? null : [before, a.block];
  }

  focus(side: Side): Focus {
    const { query, key } = this.store.hover.value;
    const { word, key: pinned } = this.selection.value;
    const hovered = query !== null || key !== null;
    return {
      row: rowOf(side.filtered.rows, this.place(side, hovered ? query : word, "query")),
      column: rowOf(side.filtered.columns, this.place(side, hovered ? key : pinned, "key")),
    };
  }

  /** Weights of one row, exact where the backend has them. */
  row(side: Side, row: number): { weights: Float32Array; precision: Precision } | null {
    const matrix = this.matrix(side);
    if (!matrix || row < 0) return null;
    const weights = rowWeights(matrix, row);
    const precision = side.block.isFine ? "fine" : "coarse";
    const { layer, head, edits } = this.selection.value;
    const entry = side.filtered.rows[row];
    const isPlain =
      this.can.rows &&
      this.combined(side) === null &&
      edits.length === 0 &&
      entry.positions.length === 1 &&
      side.filtered.columns.length === side.block.keyTokens.texts.length;
    if (!isPlain) return { weights, precision };
    const { trace, block } = side;
    const query = entry.positions[0];
    const exact = this.requests.exact.row({ trace, block: block.name, layer, head, query });
    return exact ? { weights: exact, precision: "exact" } : { weights, precision };
  }

  /** Vectors of the chosen layer; null in a file without them. */
  vectors({ trace, block }: Side): Lazy<Vectors> | null {
    return this.requests.vectors(trace, block, this.selection.value.layer);
  }

  dispose(): void {
    this.edits.dispose();
    this.requests.dispose();
  }
}
