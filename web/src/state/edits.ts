// Edits of the model: each change of the selection's edits runs the model with them.

import { effect, signal, untracked } from "@preact/signals";
import type { Trace } from "../data/trace.ts";
import type { Requests } from "./requests.ts";
import { type Edit, type HeadId, isSamePlace } from "./selection.ts";
import type { SelectionStore } from "./selection_store.ts";

export class Edits {
  /** Traces of the edited model; null without edits. */
  readonly traces = signal<readonly Trace[] | null>(null);
  /** Edits that `traces` are of, and those last requested. */
  private applied: readonly Edit[] = [];
  private requested = "[]";
  private running = new AbortController();
  private readonly stop: () => void;

  constructor(
    private readonly store: SelectionStore,
    private readonly requests: Requests,
  ) {
    this.stop = effect(() => {
      const { edits } = store.selection.value;
      // A live page shows stored runs until its model is ready.
      const canRun = requests.can.value.off;
      if (canRun || edits.length === 0) untracked(() => void this.apply(edits));
    });
  }

  add(edit: Edit): void {
    const rest = this.list.filter((other) => !isSamePlace(other, edit));
    this.store.update({ edits: [...rest, edit] });
  }

  remove(edit: Edit): void {
    this.store.update({ edits: this.list.filter((other) => other !== edit) });
  }

  /** Switch a head off, or on. A saved file has the runs without one head: another replaces it. */
  toggleOff(id: HeadId, canRun: boolean): void {
    const { block } = this.store.selection.peek();
    const off = { kind: "off", block, layer: id.layer, head: id.head } as const;
    const on = this.list.find((edit) => isSamePlace(edit, off));
    if (on) this.remove(on);
    else if (canRun) this.add(off);
    else this.store.update({ edits: [off] });
  }

  /** Whether a head of the block on screen is off. */
  isOff(id: HeadId): boolean {
    const { block, edits } = this.store.selection.value;
    const { layer, head } = id;
    return edits.some((edit) => isSamePlace(edit, { kind: "off", block, layer, head }));
  }

  /** Head that is off, if that is the only edit, in the block on screen. */
  get onlyOff(): HeadId | null {
    const { block, edits } = this.store.selection.value;
    const [edit, ...rest] = edits;
    return edit?.kind === "off" && edit.block === block && rest.length === 0 ? edit : null;
  }

  dispose(): void {
    this.stop();
    this.running.abort();
  }

  private get list(): readonly Edit[] {
    return this.store.selection.peek().edits;
  }

  /** Run the model with edits; a newer run ends an older one. Edits that fail are removed, so that
   *  chips and drawings agree. */
  private async apply(edits: readonly Edit[]): Promise<void> {
    const code = JSON.stringify(edits);
    if (code === this.requested) return;
    this.requested = code;
    this.running.abort();
    this.running = new AbortController();
    const { signal } = this.running;
    if (edits.length === 0) {
      this.traces.value = null;
      this.applied = [];
      return;
    }
    await this.requests.run("The model runs with your edits …", signal, async (backend) => {
      try {
        const traces = await backend.edit(edits, signal);
        signal.throwIfAborted();
        this.traces.value = traces;
        this.applied = edits;
      } catch (error) {
        if (!signal.aborted) {
          this.requested = JSON.stringify(this.applied);
          this.store.update({ edits: this.applied });
        }
        throw error;
      }
    });
  }
}
