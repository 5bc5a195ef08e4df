// The notebook's kernel, as far as a widget knows it: shared values, and answers to questions.

import { type Asker, Refusal, type ScoreSum } from "./asker.ts";
import { type Take, takeFrom } from "./buffer.ts";
import { openEffects } from "./effects.ts";
import { checkTrace, type EffectsPart, type TracePart, type VectorsPart } from "./payload.ts";
import { openTraces, openVectors } from "./trace.ts";

export interface Model {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, listener: (...values: never[]) => void): void;
  off(event: string, listener: (...values: never[]) => void): void;
  send(content: unknown): void;
}

interface Answer<T> {
  readonly content: T & { id: number; found?: boolean; error?: string };
  readonly buffers: readonly Uint8Array<ArrayBuffer>[];
}

/** Asks the kernel, until told to stop. */
export function kernelAsker(model: Model): Asker & { stop(): void } {
  const waiting = new Map<number, (answer: Answer<unknown>) => void>();
  let asked = 0;
  const arrive = (content: Answer<unknown>["content"], views: DataView<ArrayBuffer>[]) => {
    const buffers = (views ?? []).map(
      (view) =>
        new Uint8Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength)),
    );
    waiting.get((content as { id: number }).id)?.({ content, buffers } as Answer<unknown>);
    waiting.delete((content as { id: number }).id);
  };
  model.on("msg:custom", arrive);
  const ask = <T>(kind: string, wish: object): Promise<Answer<T>> =>
    new Promise((resolve, reject) => {
      waiting.set(++asked, (answer) => {
        const { error } = answer.content as { error?: string };
        if (error) reject(new Refusal(error));
        else resolve(answer as Answer<T>);
      });
      model.send({ ...wish, kind, id: asked });
    });
  const take = ({ buffers }: Answer<unknown>): Take => takeFrom((index) => buffers[index] ?? null);
  return {
    async row(row) {
      const none = { content: { found: false }, buffers: [] };
      const { content, buffers } = await ask<object>("row", row).catch(() => none);
      return content.found && buffers[0] ? new Float32Array(buffers[0].buffer) : null;
    },
    async neurons(trace, block, layer) {
      const answer = await ask<{ part: VectorsPart }>("neurons", { trace, block, layer });
      return openVectors(answer.content.part, take(answer));
    },
    async edit(edits) {
      const answer = await ask<{ traces: TracePart[] }>("edit", { edits });
      answer.content.traces.forEach(checkTrace);
      return openTraces(answer.content, take(answer));
    },
    async effects(trace, position) {
      const answer = await ask<{ effects: EffectsPart }>("effects", { trace, position });
      return (await openEffects(answer.content.effects, take(answer)))!;
    },
    async score(trace, at) {
      return (await ask<ScoreSum>("score", { trace, ...at })).content;
    },
    stop: () => model.off("msg:custom", arrive),
  };
}
