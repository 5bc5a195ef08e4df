// Who can be asked while the page is looked at: the lab's server, a notebook's kernel, or nobody.

import type { Edit } from "../state/selection.ts";
import type { Take } from "./buffer.ts";
import type { EffectTable } from "./effects.ts";
import type { AskRow } from "./exact.ts";
import { checkTrace, type TracePart, type VectorsPart } from "./payload.ts";
import { openTraces, openVectors, type Trace, type Vectors } from "./trace.ts";

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
export class Refusal extends Error {}

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
  score(
    trace: number,
    at: { layer: number; head: number; query: number; key: number },
  ): Promise<ScoreSum>;
}

/** An object, and the buffers that it names by number. */
export interface Reply<T> {
  readonly content: T;
  readonly take: Take;
}

export type Ask = <T>(kind: string, wish: object, signal?: AbortSignal) => Promise<Reply<T>>;

/** What a server and a kernel are asked for in the same words. */
export function questions(ask: Ask): Pick<Asker, "neurons" | "edit" | "score"> {
  return {
    async neurons(trace, block, layer) {
      const wish = { trace, block, layer };
      const { content, take } = await ask<{ part: VectorsPart }>("neurons", wish);
      return openVectors(content.part, take);
    },
    async edit(edits, signal) {
      const { content, take } = await ask<{ traces: TracePart[] }>("edit", { edits }, signal);
      content.traces.forEach(checkTrace);
      return openTraces(content, take);
    },
    async score(trace, at) {
      return (await ask<ScoreSum>("score", { trace, ...at })).content;
    },
  };
}
