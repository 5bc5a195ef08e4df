// Backends that run the model for an open page: the lab's server and a notebook's kernel. That of a
// live page is in live.ts.

import { type ReadonlySignal, signal } from "@preact/signals";
import type {
  EffectsPart,
  Header,
  ScoreSum,
  TracePart,
  VectorsPart,
  WiresPart,
} from "../../generated/payload.ts";
import type { Edit } from "../state/selection.ts";
import { bufferReader, bytesOfBase64, type ReadBuffer } from "./decode.ts";
import { type EffectTable, openEffects } from "./effects.ts";
import type { RequestRow } from "./exact_rows.ts";
import type { LiveModel } from "./live.ts";
import { checkHeader, checkTrace } from "./parse.ts";
import { openTraces, openVectors, type Trace, type Vectors } from "./trace.ts";

export type Progress = Readonly<{ done: number; total: number }>;

/** Request that the backend rejected; the page shows the message. */
export class RequestError extends Error {}

/** What a backend can do; views offer only that. */
export type Abilities = Readonly<
  Record<"trace" | "off" | "cell" | "neuron" | "score" | "effects" | "rows" | "neurons", boolean>
>;

export const NOTHING: Abilities = {
  trace: false,
  off: false,
  cell: false,
  neuron: false,
  score: false,
  effects: false,
  rows: false,
  neurons: false,
};
export const EVERYTHING = Object.fromEntries(
  Object.keys(NOTHING).map((name) => [name, true]),
) as Abilities;

/** Requests that a page can send. A saved file has no backend. */
export interface Backend {
  readonly can: ReadonlySignal<Abilities>;
  /** Model inside the page. */
  readonly model?: Pick<LiveModel, "status" | "typing" | "start">;
  /** One exact row of attention; null if the backend lost the trace. */
  row: RequestRow;
  neurons(trace: number, block: string, layer: number): Promise<Vectors>;
  edit(edits: readonly Edit[], signal: AbortSignal): Promise<Trace[]>;
  /** Effects of ablating each head of a block alone. A kernel reports no progress and cannot be aborted. A
   *  live page starts with the layer `first`, and hands over what it has. */
  effects(
    trace: number,
    block: string,
    position: number | null,
    follow: (progress: Progress, table?: EffectTable) => void,
    signal: AbortSignal,
    first: number,
  ): Promise<EffectTable>;
  /** Wires behind the difference of the two texts; missing where it cannot be measured. */
  wires?(follow: (progress: Progress) => void, signal: AbortSignal): Promise<WiresPart>;
  /** One attention score as a sum over the terms of the residual stream. */
  score(
    trace: number,
    place: { layer: number; head: number; query: number; key: number },
  ): Promise<ScoreSum>;
}

/** JSON content, and a reader of the buffers that it numbers. */
interface Reply<T> {
  readonly content: T;
  readonly readBuffer: ReadBuffer;
}

type Send = <T>(kind: string, request: object, signal?: AbortSignal) => Promise<Reply<T>>;

/** Build the requests that servers and kernels take in the same form. */
function sharedRequests(send: Send): Pick<Backend, "can" | "neurons" | "edit" | "score"> {
  return {
    can: signal(EVERYTHING),
    async neurons(trace, block, layer) {
      const request = { trace, block, layer };
      const { content, readBuffer } = await send<{ part: VectorsPart }>("neurons", request);
      return openVectors(content.part, readBuffer);
    },
    async edit(edits, signal) {
      const { content, readBuffer } = await send<{ traces: TracePart[] }>(
        "edit",
        { edits },
        signal,
      );
      content.traces.forEach(checkTrace);
      return openTraces(content, readBuffer);
    },
    async score(trace, place) {
      return (await send<ScoreSum>("score", { trace, ...place })).content;
    },
  };
}

/** Input of one trace: a text, or two that the model reads together. */
export type Input = Readonly<{ text: string; pair?: string; target?: string; generate?: number }>;

/** Request for a trace of one input, or of two to compare. */
export type TraceRequest = Readonly<{ model: string; inputs: readonly Input[] }>;

export type TraceReply = Readonly<{ header: Header; traces: Trace[]; backend: Backend }>;

/** Request a trace from `headscope serve`; the reply's backend takes further requests on it. */
export async function requestTrace(
  request: TraceRequest,
  signal: AbortSignal,
): Promise<TraceReply> {
  const { content, readBuffer } = await postJson<{ id: string; header: unknown }>(
    "trace",
    request,
    signal,
  );
  const header = checkHeader(content.header);
  const traces = await openTraces(header, readBuffer);
  return { header, traces, backend: serverBackend(content.id) };
}

function serverBackend(id: string): Backend {
  return {
    ...sharedRequests((kind, request, signal) => postJson(kind, { id, ...request }, signal)),
    async row(row) {
      try {
        return new Float32Array(await (await post("row", { id, ...row })).arrayBuffer());
      } catch {
        return null; // The trace expired, or the server stopped: the drawn value stays.
      }
    },
    async effects(trace, block, position, follow, signal) {
      const response = await post("effects", { id, trace, block, position }, signal);
      const { content, readBuffer } = replyOf(await lastEvent<EffectsReply>(response, follow));
      return (await openEffects(content.effects, readBuffer))!;
    },
    async wires(follow, signal) {
      const response = await post("wires", { id }, signal);
      return (await lastEvent<{ wires: WiresPart }>(response, follow)).wires;
    },
  };
}

async function post(path: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal: signal ?? null,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new RequestError("The server does not answer. Is `headscope serve` still running?");
  }
  if (response.ok) return response;
  const reason = (await response.json().catch(() => null)) as { error?: string } | null;
  throw new RequestError(reason?.error ?? `The server answered ${response.status}.`);
}

const postJson: Send = async <T>(path: string, body: object, signal?: AbortSignal) =>
  replyOf((await (await post(path, body, signal)).json()) as T);

function replyOf<T>(content: T): Reply<T> {
  const { buffers } = content as { buffers?: string[] };
  return {
    content,
    readBuffer: bufferReader((index) => (buffers?.[index] ? bytesOfBase64(buffers[index]) : null)),
  };
}

type EffectsReply = Readonly<{ effects: EffectsPart }>;

/** Read server-sent events up to the last, which holds what was measured. */
async function lastEvent<T extends object>(
  response: Response,
  follow: (progress: Progress) => void,
): Promise<T> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  for (;;) {
    const { done, value } = await reader.read();
    pending += value ?? "";
    const events = pending.split(/\r?\n\r?\n/);
    pending = done ? "" : events.pop()!;
    for (const event of events) {
      const lines = event.split(/\r?\n/).filter((line) => line.startsWith("data:"));
      if (lines.length === 0) continue;
      const data = JSON.parse(lines.map((line) => line.slice(5)).join("\n")) as
        | Progress
        | T
        | { error: string };
      if ("error" in data) throw new RequestError(data.error);
      if (!("done" in data)) return data;
      follow(data);
    }
    if (done) throw new RequestError("The measurement ended before it was complete.");
  }
}

export interface WidgetModel {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, listener: (...values: never[]) => void): void;
  off(event: string, listener: (...values: never[]) => void): void;
  send(content: unknown): void;
}

interface KernelReply {
  readonly content: { readonly id: number; readonly found?: boolean; readonly error?: string };
  readonly buffers: readonly Uint8Array<ArrayBuffer>[];
}

/** Backend of a notebook: it also reads another text, which arrives as a change of the header. */
export interface KernelBackend extends Backend {
  read(text: string): Promise<void>;
  stop(): void;
}

/** Send requests to the kernel as messages; `stop` ends it. */
export function kernelBackend(model: WidgetModel): KernelBackend {
  const waiting = new Map<number, (reply: KernelReply) => void>();
  let count = 0;
  const receive = (content: KernelReply["content"], views: DataView<ArrayBuffer>[] | undefined) => {
    const buffers = (views ?? []).map(
      ({ buffer, byteOffset, byteLength }) =>
        new Uint8Array(buffer.slice(byteOffset, byteOffset + byteLength)),
    );
    waiting.get(content.id)?.({ content, buffers });
    waiting.delete(content.id);
  };
  model.on("msg:custom", receive);
  const message = (kind: string, request: object): Promise<KernelReply> =>
    new Promise((resolve, reject) => {
      waiting.set(++count, (reply) => {
        const { error } = reply.content;
        if (error) reject(new RequestError(error));
        else resolve(reply);
      });
      model.send({ ...request, kind, id: count });
    });
  const send: Send = async <T>(kind: string, request: object) => {
    const { content, buffers } = await message(kind, request);
    return { content: content as T, readBuffer: bufferReader((index) => buffers[index] ?? null) };
  };
  return {
    ...sharedRequests(send),
    async row(row) {
      const reply = await message("row", row).catch(() => null);
      const [weights] = reply?.content.found ? reply.buffers : [];
      return weights ? new Float32Array(weights.buffer) : null;
    },
    async effects(trace, block, position) {
      const request = { trace, block, position };
      const { content, readBuffer } = await send<EffectsReply>("effects", request);
      return (await openEffects(content.effects, readBuffer))!;
    },
    async read(text) {
      await message("read", { text });
    },
    stop: () => model.off("msg:custom", receive),
  };
}
