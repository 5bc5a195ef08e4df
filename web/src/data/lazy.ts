// What arrives later: reading it starts it, and whoever read it is drawn again when it is there.

import { type Signal, signal } from "@preact/signals";

export class Lazy<T> {
  private readonly arrived: Signal<T | null> = signal(null);
  private started: Promise<T> | null = null;
  /** Why it did not come; empty while all is well. */
  readonly problem = signal("");

  constructor(private readonly load: () => Promise<T>) {}

  /** What arrived, or null until then. */
  get value(): T | null {
    if (!this.started) this.whole().catch(() => {});
    return this.arrived.value;
  }

  whole(): Promise<T> {
    this.started ??= this.load().then(
      (found) => {
        this.arrived.value = found;
        return found;
      },
      (error: unknown) => {
        this.problem.value = error instanceof Error ? error.message : String(error);
        throw error;
      },
    );
    return this.started;
  }
}
