// The server of `headscope serve`, as far as the page knows it: traces and exact rows.

import { bytesOfBase64 } from "./buffer.ts";
import type { AskRow } from "./exact.ts";
import { checkHeader, type Header } from "./payload.ts";
import { openTraces, type Trace } from "./trace.ts";

/** What is asked of a model. */
export interface Wish {
  readonly model: string;
  readonly text: string;
  readonly pair: string;
  readonly target: string;
  readonly generate: number;
  /** Heads to switch off, as `[layer, head]`; a second trace then shows the model without. */
  readonly ablate: readonly (readonly [number, number])[];
}

/** What the server said no to, in its own words. */
export class Refusal extends Error {}

export interface Answered {
  readonly header: Header;
  readonly traces: Trace[];
  readonly ask: AskRow;
}

async function post(path: string, body: unknown): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
  } catch {
    throw new Refusal("The server does not answer. Is `headscope serve` still running?");
  }
  if (answer.ok) return answer;
  const said = (await answer.json().catch(() => null)) as { error?: string } | null;
  throw new Refusal(said?.error ?? `The server answered ${answer.status}.`);
}

/** Trace a text, and keep asking the same server for the exact rows of it. */
export async function askTrace(wish: Wish): Promise<Answered> {
  const answer = await post("trace", wish);
  const { id, header, buffers } = (await answer.json()) as {
    id: string;
    header: unknown;
    buffers: string[];
  };
  const checked = checkHeader(header);
  const traces = await openTraces(checked, buffers.map(bytesOfBase64));
  const ask: AskRow = async (row) => {
    try {
      const found = await post("row", { id, ...row });
      return new Float32Array(await found.arrayBuffer());
    } catch {
      return null; // The server forgot the trace, or is gone: the drawn value stays.
    }
  };
  return { header: checked, traces, ask };
}
