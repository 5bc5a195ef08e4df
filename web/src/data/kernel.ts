// The notebook's kernel, as far as a widget knows it: shared values, and answers to questions.

import { type Ask, type Asker, questions, Refusal } from "./asker.ts";
import { takeFrom } from "./buffer.ts";
import { openEffects } from "./effects.ts";
import type { EffectsPart } from "./payload.ts";

export interface Model {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, listener: (...values: never[]) => void): void;
  off(event: string, listener: (...values: never[]) => void): void;
  send(content: unknown): void;
}

interface Answer {
  readonly content: { readonly id: number; readonly found?: boolean; readonly error?: string };
  readonly buffers: readonly Uint8Array<ArrayBuffer>[];
}

/** Asks the kernel, until told to stop. */
export function kernelAsker(model: Model): Asker & { stop(): void } {
  const waiting = new Map<number, (answer: Answer) => void>();
  let asked = 0;
  const arrive = (content: Answer["content"], views: DataView<ArrayBuffer>[] | undefined) => {
    const buffers = (views ?? []).map(
      (view) =>
        new Uint8Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength)),
    );
    waiting.get(content.id)?.({ content, buffers });
    waiting.delete(content.id);
  };
  model.on("msg:custom", arrive);
  const send = (kind: string, wish: object): Promise<Answer> =>
    new Promise((resolve, reject) => {
      waiting.set(++asked, (answer) => {
        const { error } = answer.content;
        if (error) reject(new Refusal(error));
        else resolve(answer);
      });
      model.send({ ...wish, kind, id: asked });
    });
  const ask: Ask = async <T>(kind: string, wish: object) => {
    const { content, buffers } = await send(kind, wish);
    return { content: content as T, take: takeFrom((index) => buffers[index] ?? null) };
  };
  return {
    ...questions(ask),
    async row(row) {
      const answer = await send("row", row).catch(() => null);
      const [weights] = answer?.content.found ? answer.buffers : [];
      return weights ? new Float32Array(weights.buffer) : null;
    },
    async effects(trace, position) {
      const { content, take } = await ask<{ effects: EffectsPart }>("effects", { trace, position });
      return (await openEffects(content.effects, take))!;
    },
    stop: () => model.off("msg:custom", arrive),
  };
}
