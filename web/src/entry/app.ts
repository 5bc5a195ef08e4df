// The web app's explorer: `<div data-payload="URL">` is filled with what the URL answers.

import { bytesOfBase64 } from "../data/buffer.ts";
import { checkHeader, PayloadError } from "../data/payload.ts";
import { openTraces } from "../data/trace.ts";
import { Explorer } from "../view/explorer.ts";
import { showProblem } from "../view/problem.ts";

/** Fetch `{ header, buffers }` (buffers as base64) and show it in `host`. */
export async function mount(host: HTMLElement, url: string): Promise<Explorer | null> {
  try {
    const answer = await fetch(url);
    if (!answer.ok) throw new PayloadError(`The server answered ${answer.status} for ${url}.`);
    const { header, buffers } = (await answer.json()) as { header: unknown; buffers: string[] };
    const checked = checkHeader(header);
    const traces = await openTraces(checked, buffers.map(bytesOfBase64));
    return new Explorer(host, traces, {
      fragment: location.hash.length > 1 ? location.hash.slice(1) : checked.selection,
      changed: (fragment) => history.replaceState(null, "", `#${fragment}`),
      ask: null,
      around: null,
    });
  } catch (error) {
    showProblem(host, error);
    return null;
  }
}

for (const host of document.querySelectorAll<HTMLElement>("[data-payload]")) {
  void mount(host, host.dataset.payload ?? "");
}
