// Who can be asked while the page is looked at: the lab's server, a notebook's kernel, or nobody.

import type { Edit } from "../state/selection.ts";
import type { EffectTable } from "./effects.ts";
import type { AskRow } from "./exact.ts";
import type { Trace, Vectors } from "./trace.ts";

/** One score as a sum over the parts of the residual stream. */
export interface ScoreSum {
  readonly total: number;
  readonly parts: readonly {
    readonly name: string;
    readonly query_side: number;
    readonly key_side: number;
    readonly share: number;
  }[];
  /** What the score is contrasted with, in words. */
  readonly against: string;
}

/** How far a long measurement is. */
export interface Progress {
  readonly done: number;
  readonly total: number;
}

/** What was refused, in the words of who refused it. */
export class Refusal extends Error {
  constructor(
    message: string,
    /** Seconds after which to ask again; 0 where that does not help. */
    readonly wait = 0,
  ) {
    super(message);
  }
}

export interface Asker {
  row: AskRow;
  neurons(trace: number, block: string, layer: number): Promise<Vectors>;
  edit(edits: readonly Edit[], signal: AbortSignal): Promise<Trace[]>;
  effects(
    trace: number,
    position: number | null,
    follow: (progress: Progress) => void,
    signal: AbortSignal,
  ): Promise<EffectTable>;
  score(trace: number, at: ScoreId): Promise<ScoreSum>;
}

export interface ScoreId {
  readonly layer: number;
  readonly head: number;
  readonly query: number;
  readonly key: number;
}
