// The server of `headscope serve`, as far as the page knows it.

import { type Ask, type Asker, type Progress, questions, Refusal, type Reply } from "./asker.ts";
import { bytesOfBase64, takeFrom } from "./buffer.ts";
import { openEffects } from "./effects.ts";
import { checkHeader, type EffectsPart, type Header } from "./payload.ts";
import { openTraces, type Trace } from "./trace.ts";

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
