// The server of `headscope serve`, as far as the page knows it.

import type { Edit } from "../state/selection.ts";
import { type Asker, type Progress, Refusal, type ScoreSum } from "./asker.ts";
import { bytesOfBase64, type Take, takeFrom } from "./buffer.ts";
import { openEffects } from "./effects.ts";
import {
  checkHeader,
  checkTrace,
  type EffectsPart,
  type Header,
  type TracePart,
  type VectorsPart,
} from "./payload.ts";
import { openTraces, openVectors, type Trace } from "./trace.ts";

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

export interface Answered {
  readonly header: Header;
  readonly traces: Trace[];
  readonly asker: Asker;
}

/** Buffers of an answer, as base64. */
interface Packed {
  readonly buffers: string[];
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
  const said = (await answer.json().catch(() => null)) as { error?: string; wait?: number } | null;
  throw new Refusal(said?.error ?? `The server answered ${answer.status}.`, said?.wait ?? 0);
}

async function ask<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  return (await (await post(path, body, signal)).json()) as T;
}

/** Trace texts, and keep asking the same server about them. */
export async function askTrace(wish: Wish, signal: AbortSignal): Promise<Answered> {
  const answer = await ask<Packed & { id: string; header: unknown }>("trace", wish, signal);
  const header = checkHeader(answer.header);
  const traces = await openTraces(header, takeOf(answer));
  return { header, traces, asker: serverAsker(answer.id) };
}

function takeOf({ buffers }: Packed): Take {
  return takeFrom((index) => (buffers[index] ? bytesOfBase64(buffers[index]) : null));
}

function serverAsker(id: string): Asker {
  return {
    async row(row) {
      try {
        const found = await post("row", { id, ...row });
        return new Float32Array(await found.arrayBuffer());
      } catch {
        return null; // The server forgot the trace, or is gone: the drawn value stays.
      }
    },
    async neurons(trace, block, layer) {
      type Found = Packed & { part: VectorsPart };
      const found = await ask<Found>("neurons", { id, trace, block, layer });
      return openVectors(found.part, takeOf(found));
    },
    async edit(edits: readonly Edit[], signal) {
      const found = await ask<Packed & { traces: TracePart[] }>("edit", { id, edits }, signal);
      found.traces.forEach(checkTrace);
      return openTraces(found, takeOf(found));
    },
    async effects(trace, position, follow, signal) {
      const answer = await post("effects", { id, trace, position }, signal);
      const last = await followed(answer, follow);
      return (await openEffects(last.effects, takeOf(last)))!;
    },
    score: (trace, at) => ask<ScoreSum>("score", { id, trace, ...at }),
  };
}

type Measured = Packed & { effects: EffectsPart };

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
