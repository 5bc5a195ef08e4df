// Requests to the backend: exact rows, vectors, effects; their progress and errors.

import { batch, type ReadonlySignal, signal } from "@preact/signals";
import type { WiresPart } from "../../generated/payload.ts";
import {
  type Abilities,
  type Backend,
  NOTHING,
  type Progress,
  RequestError,
} from "../data/backend.ts";
import type { EffectTable } from "../data/effects.ts";
import { ExactRows } from "../data/exact_rows.ts";
import { type Block, Lazy, type Trace, type Vectors } from "../data/trace.ts";

type Measurable = Readonly<{ trace: number; base: Trace; block: Block }>;

export class Requests {
  readonly busy = signal("");
  readonly error = signal("");
  readonly progress = signal<Progress | null>(null);
  /** Effects by trace and block. */
  readonly effects = signal<ReadonlyMap<string, EffectTable>>(new Map());
  readonly wires = signal<WiresPart | null>(null);
  readonly measuringWires = signal(false);
  readonly can: ReadonlySignal<Abilities>;
  readonly exact: ExactRows;
  private measuring = new AbortController();

  constructor(private readonly backend: Backend | null) {
    this.can = backend?.can ?? signal(NOTHING);
    this.exact = new ExactRows(backend?.row ?? null);
  }

  /** Vectors of a layer: stored, requested once, or null in a file without them. */
  vectors(trace: number, block: Block, layer: number): Lazy<Vectors> | null {
    const stored = block.vectors.get(layer);
    const { backend } = this;
    if (stored || !backend || !this.can.value.neurons) return stored ?? null;
    const requested = new Lazy(() => backend.neurons(trace, block.name, layer));
    block.vectors.set(layer, requested);
    return requested;
  }

  /** Effects measured for a block, else those stored with its trace, which are of the first. */
  effectsOf({ trace, base, block }: Measurable): EffectTable | null {
    const stored = block.name === base.blocks[0].name ? base.effects : null;
    return this.effects.value.get(`${trace}/${block.name}`) ?? stored;
  }

  /** Measure each head's effect on a trace, layer `first` first; a newer run ends an older one. */
  async measure(
    { trace, block }: Measurable,
    position: number | null,
    first: number,
  ): Promise<void> {
    this.measuring.abort();
    this.measuring = new AbortController();
    const { signal } = this.measuring;
    const keep = (table: EffectTable) => {
      signal.throwIfAborted();
      this.effects.value = new Map(this.effects.peek()).set(`${trace}/${block.name}`, table);
    };
    const follow = (progress: Progress, table?: EffectTable) => {
      this.progress.value = progress;
      if (table) keep(table);
    };
    await this.run("", signal, async (backend) => {
      keep(await backend.effects(trace, block.name, position, follow, signal, first));
    });
    if (!signal.aborted) this.progress.value = null;
  }

  /** Measure the wires behind the difference of two texts. */
  async measureWires(): Promise<void> {
    this.measuring.abort();
    this.measuring = new AbortController();
    const { signal } = this.measuring;
    this.measuringWires.value = true;
    await this.run("", signal, async (backend) => {
      const follow = (progress: Progress) => {
        this.progress.value = progress;
      };
      this.wires.value = (await backend.wires?.(follow, signal)) ?? null;
    });
    this.measuringWires.value = false;
    if (!signal.aborted) this.progress.value = null;
  }

  /** End the measurement; what it has measured stays. */
  stop(): void {
    this.measuring.abort();
    this.progress.value = null;
  }

  /** Run `work` under a status text, and show its error. */
  async run(
    text: string,
    signal: AbortSignal,
    work: (backend: Backend) => Promise<void>,
  ): Promise<void> {
    if (!this.backend) return;
    batch(() => {
      this.busy.value = text;
      this.error.value = "";
    });
    try {
      await work(this.backend);
    } catch (error) {
      if (!signal.aborted) {
        this.error.value = error instanceof RequestError ? error.message : String(error);
      }
    }
    if (!signal.aborted) this.busy.value = "";
  }

  dispose(): void {
    this.measuring.abort();
  }
}
