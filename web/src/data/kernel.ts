// The notebook's kernel, as far as a widget knows it: shared values, and exact rows on request.

import type { RowId } from "./exact.ts";

export interface Model {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, listener: (...values: never[]) => void): void;
  off(event: string, listener: (...values: never[]) => void): void;
  send(content: unknown): void;
}

/** Asks the kernel for rows of attention, until told to stop. */
export function asker(model: Model): {
  ask(row: RowId): Promise<Float32Array | null>;
  stop(): void;
} {
  const waiting = new Map<number, (row: Float32Array | null) => void>();
  let asked = 0;
  const answer = (content: { id: number; found: boolean }, buffers: DataView[]) => {
    const bytes = buffers?.[0];
    const copy = bytes?.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
    waiting.get(content.id)?.(content.found && copy ? new Float32Array(copy) : null);
    waiting.delete(content.id);
  };
  model.on("msg:custom", answer);
  return {
    ask: (row) =>
      new Promise((resolve) => {
        waiting.set(++asked, resolve);
        model.send({ kind: "row", id: asked, ...row });
      }),
    stop: () => model.off("msg:custom", answer),
  };
}
