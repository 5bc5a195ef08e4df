// What is open: traces, the selection, what the pointer is over, and who can be asked.

import { batch, computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { type Backend, type Progress, RequestError } from "../data/backend.ts";
import type { EffectTable } from "../data/effects.ts";
import { ExactRows } from "../data/exact_rows.ts";
import {
  FilteredBlock,
  type Focus,
  LINES_LIMIT,
  type Matrix,
  meanOf,
  rowWeights,
} from "../data/filtered_block.ts";
import type { Precision } from "../data/format.ts";
import type { Header, Role } from "../data/payload.ts";
import { rowOf } from "../data/tokens.ts";
import { type Block, Lazy, type Trace, type Vectors } from "../data/trace.ts";
import { type Scheme, type Theme, themeOf } from "../paint/theme.ts";
import {
  blockOf,
  defaultSelection,
  type Edit,
  fitSelection,
  formatFragment,
  type HeadId,
  headCode,
  isSameHead,
  isSamePlace,
  parseFragment,
  type Selection,
  type Tab,
} from "./selection.ts";
import { tourOf } from "./tour.ts";

/** One input: of two that stand together, A or B. */
export interface Side {
  /** Number of the trace in the payload. */
  readonly trace: number;
  readonly letter: string;
  readonly base: Trace;
  /** As the model is now: the base itself without edits. */
  readonly now: Trace;
  readonly block: Block;
  readonly filtered: FilteredBlock;
  readonly baseFiltered: FilteredBlock;
}

/** What the pointer or the keyboard is over; never kept in the URL. */
export interface Hover {
  readonly query: number | null;
  readonly key: number | null;
}

const NO_HOVER: Hover = { query: null, key: null };

type Layout = "wide" | "middle" | "phone";

export class Session {
  readonly base: Selection;
  /** The steps of the page's own story, else of the tour that every page has. */
  readonly story: Header["story"];
  readonly selection: Signal<Selection>;
  readonly hover = signal<Hover>(NO_HOVER);
  readonly size = signal({ width: 1440, height: 900 });
  readonly system = signal<Scheme>("light");
  /** The traces under the edits that are on. */
  readonly edited = signal<readonly Trace[] | null>(null);
  readonly effects = signal<ReadonlyMap<number, EffectTable>>(new Map());
  /** Which of the likeliest answers the heads are ranked by. */
  readonly candidate = signal(0);
  readonly progress = signal<Progress | null>(null);
  /** What is under way, and what went wrong, in words. */
  readonly busy = signal("");
  readonly problem = signal("");
  private readonly exact: ExactRows;
  private readonly means = new WeakMap<FilteredBlock, { names: string; mean: Matrix }>();
  /** The edits that the picture is of. */
  private acting: readonly Edit[] = [];
  private running = { edit: new AbortController(), effects: new AbortController() };

  constructor(
    readonly header: Header,
    readonly traces: readonly Trace[],
    readonly backend: Backend | null,
    fragment: string,
  ) {
    this.exact = new ExactRows(backend?.row ?? null);
    const first = traces[header.examples[0].traces[0]];
    this.story = header.story;
    this.base = this.fit(parseFragment(header.selection, defaultSelection(first)));
    if (header.story.length === 0) {
      this.story = tourOf(first, this.base, backend !== null);
      this.base = { ...this.base, story: -1 };
    }
    this.selection = signal(this.fit(this.read(fragment, this.base)));
    if (this.selection.value.edits.length > 0) void this.applyEdits();
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
      const now = this.edited.value?.[trace] ?? base;
      const [block, before] = [now, base].map((one) => blockOf(one, this.blockName.value));
      const filtered = new FilteredBlock(block, filter);
      const baseFiltered = before === block ? filtered : new FilteredBlock(before, filter);
      return {
        trace,
        letter: traces.length > 1 ? "AB"[i] : "",
        base,
        now,
        block,
        filtered,
        baseFiltered,
      };
    });
  });

  /** The inputs that there is room for. */
  readonly shown: ReadonlySignal<readonly Side[]> = computed(() => {
    const sides = this.sides.value;
    if (this.layout.value === "wide" || sides.length === 1) return sides;
    return [sides[this.selection.value.side] ?? sides[0]];
  });

  /** The input that panes with room for one show. */
  readonly lead: ReadonlySignal<Side> = computed(
    () => this.sides.value[this.selection.value.side] ?? this.sides.value[0],
  );

  readonly tab: ReadonlySignal<Tab> = computed(() => {
    const { tab } = this.selection.value;
    const { rows, columns } = this.sides.value[0].filtered;
    const usual = Math.max(rows.length, columns.length) > LINES_LIMIT ? "matrix" : "lines";
    if (tab === null) return usual;
    return tab === "effect" && this.layout.value !== "middle" ? usual : tab;
  });

  get fragment(): string {
    const selection = this.selection.value;
    return formatFragment(selection, this.stepFrom(selection.story, this.base));
  }

  /** What is selected, as a step for the story of any page: with its word, or without one. */
  get step(): string {
    const { story, theme, embed } = this.base;
    return formatFragment(
      { ...this.selection.value, story, theme, embed },
      { ...this.base, word: this.selection.value.word === null ? -1 : null },
    );
  }

  /** What a step of the story opens; before and without one, what the page does. */
  private stepFrom(step: number, base: Selection): Selection {
    const told = this.story[step - 1];
    return told ? parseFragment(told.selection, base) : base;
  }

  /** What a fragment selects: on top of the step of the story that it names. */
  private read(fragment: string, base: Selection): Selection {
    return parseFragment(fragment, this.stepFrom(parseFragment(fragment, base).story, base));
  }

  update(changes: Partial<Selection>): void {
    const before = this.selection.peek();
    const moved = changes.example !== undefined && changes.example !== before.example;
    const fresh = moved ? { word: null, key: null, edits: [] } : {};
    batch(() => {
      this.selection.value = this.fit({ ...before, ...fresh, ...changes });
      if (this.selection.value.edits !== before.edits) void this.applyEdits();
    });
  }

  /** Go where a fragment points; what it does not name opens as the page does. */
  open(fragment: string, keep: Partial<Selection> = {}): void {
    const { theme, embed } = this.selection.peek();
    this.update({ ...this.read(fragment, { ...this.base, theme, embed }), ...keep });
  }

  point(hover: Partial<Hover>): void {
    const next = { ...NO_HOVER, ...hover };
    const now = this.hover.peek();
    if (next.query !== now.query || next.key !== now.key) this.hover.value = next;
  }

  layerIndex(block: Block): number {
    return Math.max(0, block.layers.indexOf(this.selection.value.layer));
  }

  isOff(id: HeadId): boolean {
    return this.selection.value.edits.some((edit) => edit.kind === "off" && isSameHead(edit, id));
  }

  /** What the heads of an input do: over the corpus, or in this text. */
  roles(side: Side): readonly (readonly Role[])[] {
    const { heads, here } = side.baseFiltered.block.roles;
    return (this.selection.value.named === "text" && here) || heads;
  }

  /** The position that a side has for one of the first input: the same, or the last for the last. */
  place(side: Side, position: number | null, axis: "query" | "key"): number | null {
    if (position === null) return null;
    const count = ({ block }: Side) =>
      (axis === "query" ? block.queryTokens : block.keyTokens).texts.length;
    const [first, own] = [count(this.sides.value[0]), count(side)];
    return position === first - 1 ? own - 1 : Math.min(position, own - 1);
  }

  /** The weights that are drawn of the chosen head (or of the mean over heads), or null while they
   *  are unpacked. A head that is off is drawn as it was. */
  matrix(side: Side, id: HeadId = this.selection.value): Matrix | null {
    const { layers } = side.block;
    const filtered = this.isOff(id) ? side.baseFiltered : side.filtered;
    const heads = this.combined(side);
    if (!heads) return filtered.matrix(Math.max(0, layers.indexOf(id.layer)), id.head);
    const names = heads.map(headCode).join();
    const known = this.means.get(filtered);
    if (known?.names === names) return known.mean;
    const all = heads.map(({ layer, head }) => filtered.matrix(layers.indexOf(layer), head));
    if (!all.every((one) => one !== null)) return null;
    const mean = meanOf(all);
    this.means.set(filtered, { names, mean });
    return mean;
  }

  /** The heads whose mean is shown; null for one head alone. */
  combined({ block }: Side): readonly HeadId[] | null {
    const { layer, head, also, filter } = this.selection.value;
    if (filter.combine === "off") {
      const others = also.filter((id) => !isSameHead(id, { layer, head }));
      return others.length > 0 ? [{ layer, head }, ...others] : null;
    }
    const layers = filter.combine === "layer" ? [layer] : block.layers;
    const heads = layers.flatMap((own) =>
      Array.from({ length: block.heads }, (_, h) => ({ layer: own, head: h })).filter((id) =>
        block.has(block.layers.indexOf(id.layer), id.head),
      ),
    );
    return heads.length > 0 ? heads : null;
  }

  /** Show a head; a phone turns to its pane. */
  choose({ layer, head }: HeadId): void {
    this.update({ layer, head, ...(this.layout.peek() === "phone" ? { pane: 2 } : {}) });
  }

  /** ReadBuffer a head into the mean, or out of it. */
  toggleAlso(id: HeadId): void {
    const { also } = this.selection.peek();
    const rest = also.filter((one) => !isSameHead(one, id));
    this.update({ also: rest.length < also.length ? rest : [...also, id] });
  }

  /** Whether two inputs can be subtracted, cell from cell. */
  get hasDifference(): boolean {
    const [a, b] = this.sides.value;
    return (
      b !== undefined &&
      a.filtered.rows.length === b.filtered.rows.length &&
      a.filtered.columns.length === b.filtered.columns.length
    );
  }

  /** Rows and columns of a side that are looked at: what the pointer is over, else what is pinned. */
  focus(side: Side): Focus {
    const { query, key } = this.hover.value;
    const { word, key: pinned } = this.selection.value;
    const hovered = query !== null || key !== null;
    return {
      row: rowOf(side.filtered.rows, this.place(side, hovered ? query : word, "query")),
      column: rowOf(side.filtered.columns, this.place(side, hovered ? key : pinned, "key")),
    };
  }

  /** The weights of one row, as well as they are known. */
  row(side: Side, row: number): { weights: Float32Array; precision: Precision } | null {
    const matrix = this.matrix(side);
    if (!matrix || row < 0) return null;
    const weights = rowWeights(matrix, row);
    const precision = side.block.isFine ? "fine" : "coarse";
    const { layer, head, edits } = this.selection.value;
    const entry = side.filtered.rows[row];
    const isPlain =
      this.combined(side) === null &&
      edits.length === 0 &&
      entry.positions.length === 1 &&
      side.filtered.columns.length === side.block.keyTokens.texts.length;
    if (!isPlain) return { weights, precision };
    const { trace, block } = side;
    const query = entry.positions[0];
    const exact = this.exact.row({ trace, block: block.name, layer, head, query });
    return exact ? { weights: exact, precision: "exact" } : { weights, precision };
  }

  /** The vectors of the chosen layer: unpacked, asked for, or null where there are none (yet). */
  vectors(side: Side): Lazy<Vectors> | null {
    const { layer } = this.selection.value;
    const { block, trace } = side;
    const known = block.vectors.get(layer);
    const { backend } = this;
    if (known || !backend) return known ?? null;
    const asked = new Lazy(() => backend.neurons(trace, block.name, layer));
    block.vectors.set(layer, asked);
    return asked;
  }

  effectsOf(side: Side): EffectTable | null {
    return this.effects.value.get(side.trace) ?? side.base.effects;
  }

  edit(change: Edit): void {
    const { edits } = this.selection.peek();
    const rest = edits.filter((one) => !isSamePlace(one, change));
    this.update({ edits: [...rest, change] });
  }

  removeEdit(change: Edit): void {
    this.update({ edits: this.selection.peek().edits.filter((one) => one !== change) });
  }

  /** Let the model run with the edits that are on; a newer request ends an older one. Edits that the
   * model could not be run with are taken back: a chip says what the picture shows. */
  private async applyEdits(): Promise<void> {
    const { edits } = this.selection.peek();
    this.running.edit.abort();
    this.running.edit = new AbortController();
    const { signal } = this.running.edit;
    if (edits.length === 0 || !this.backend) {
      this.edited.value = null;
      this.acting = [];
      return;
    }
    await this.run("The model runs with your edits …", signal, async (backend) => {
      try {
        this.edited.value = await backend.edit(edits, signal);
        this.acting = edits;
      } catch (error) {
        if (!signal.aborted) {
          this.selection.value = { ...this.selection.peek(), edits: this.acting };
        }
        throw error;
      }
    });
  }

  /** Measure what every head does to the output of an input. */
  async measure(side: Side, position: number | null): Promise<void> {
    this.running.effects.abort();
    this.running.effects = new AbortController();
    const { signal } = this.running.effects;
    const follow = (progress: Progress) => {
      this.progress.value = progress;
    };
    await this.run("", signal, async (backend) => {
      const table = await backend.effects(side.trace, position, follow, signal);
      this.effects.value = new Map(this.effects.peek()).set(side.trace, table);
    });
    if (!signal.aborted) this.progress.value = null;
  }

  private async run(
    words: string,
    signal: AbortSignal,
    work: (backend: Backend) => Promise<void>,
  ): Promise<void> {
    if (!this.backend) return;
    batch(() => {
      this.busy.value = words;
      this.problem.value = "";
    });
    try {
      await work(this.backend);
    } catch (error) {
      if (!signal.aborted) {
        this.problem.value = error instanceof RequestError ? error.message : String(error);
      }
    }
    if (!signal.aborted) this.busy.value = "";
  }

  /** End what is under way. */
  dispose(): void {
    this.running.edit.abort();
    this.running.effects.abort();
  }

  private fit(selection: Selection): Selection {
    const { examples } = this.header;
    const example = selection.example < examples.length ? selection.example : 0;
    const trace = this.traces[examples[example].traces[0]];
    const step = Math.min(selection.story, this.story.length);
    return fitSelection({ ...selection, example, story: step }, trace);
  }
}
