// Who can be asked while the page is looked at: the lab's server, a notebook's kernel, or nobody.

import type { Edit } from "../state/selection.ts";
import { bytesOfBase64, type Take, takeFrom } from "./decode.ts";
import { type EffectTable, openEffects } from "./effects.ts";
import type { AskRow } from "./exact_rows.ts";
import {
  checkHeader,
  checkTrace,
  type EffectsPart,
  type Header,
  type TracePart,
  type VectorsPart,
} from "./payload.ts";
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

/** One text, or two that a model takes together. */
export interface Input {
  readonly text: string;
  readonly pair?: string;
  readonly target?: string;
  readonly generate?: number;
}

/** What is asked of a model: one input, or two to compare. */
export interface Wish {
  readonly model: string;
  readonly inputs: readonly Input[];
}

interface Answered {
  readonly header: Header;
  readonly traces: Trace[];
  readonly asker: Asker;
}

async function post(path: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal: signal ?? null,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refusal("The server does not answer. Is `headscope serve` still running?");
  }
  if (answer.ok) return answer;
  const said = (await answer.json().catch(() => null)) as { error?: string } | null;
  throw new Refusal(said?.error ?? `The server answered ${answer.status}.`);
}

const ask: Ask = async <T>(path: string, body: object, signal?: AbortSignal) =>
  opened((await (await post(path, body, signal)).json()) as T);

/** An answer, whose buffers are base64. */
function opened<T>(content: T): Reply<T> {
  const { buffers } = content as { buffers?: string[] };
  const take = takeFrom((index) => (buffers?.[index] ? bytesOfBase64(buffers[index]) : null));
  return { content, take };
}

/** Trace texts, and keep asking the same server about them. */
export async function askTrace(wish: Wish, signal: AbortSignal): Promise<Answered> {
  const { content, take } = await ask<{ id: string; header: unknown }>("trace", wish, signal);
  const header = checkHeader(content.header);
  return { header, traces: await openTraces(header, take), asker: serverAsker(content.id) };
}

function serverAsker(id: string): Asker {
  return {
    ...questions((kind, wish, signal) => ask(kind, { id, ...wish }, signal)),
    async row(row) {
      try {
        const found = await post("row", { id, ...row });
        return new Float32Array(await found.arrayBuffer());
      } catch {
        return null; // The server forgot the trace, or is gone: the drawn value stays.
      }
    },
    async effects(trace, position, follow, signal) {
      const answer = await post("effects", { id, trace, position }, signal);
      const { content, take } = opened(await followed(answer, follow));
      return (await openEffects(content.effects, take))!;
    },
  };
}

interface Measured {
  readonly effects: EffectsPart;
}

/** Reads server-sent events to the last, which holds what was measured. */
async function followed(answer: Response, follow: (progress: Progress) => void): Promise<Measured> {
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { done, value } = await reader.read();
    waiting += value ?? "";
    const events = waiting.split(/\r?\n\r?\n/);
    waiting = done ? "" : events.pop()!;
    for (const event of events) {
      const lines = event.split(/\r?\n/).filter((line) => line.startsWith("data:"));
      if (lines.length === 0) continue;
      const data = JSON.parse(lines.map((line) => line.slice(5)).join("\n")) as
        | Progress
        | Measured
        | { error: string };
      if ("error" in data) throw new Refusal(data.error);
      if ("effects" in data) return data;
      follow(data);
    }
    if (done) throw new Refusal("The measurement ended before all heads were done.");
  }
}

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
