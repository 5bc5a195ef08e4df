// The offline page: reads its data from the document itself.

import { bytesOfBase64 } from "../data/buffer.ts";
import { parseHeader } from "../data/payload.ts";
import { openTraces } from "../data/trace.ts";
import { Explorer } from "../view/explorer.ts";
import { showProblem } from "../view/problem.ts";

async function start(host: HTMLElement): Promise<void> {
  const text = (id: string) => document.getElementById(id)?.textContent ?? "";
  const header = parseHeader(text("headscope-header"));
  const elements = document.querySelectorAll<HTMLElement>("script[data-buffer]");
  const packed = Array.from(elements, (element) => bytesOfBase64(element.textContent ?? ""));
  const traces = await openTraces(header, packed);
  for (const element of elements) element.remove();
  const explorer = new Explorer(host, traces, {
    fragment: location.hash.length > 1 ? location.hash.slice(1) : header.selection,
    changed: (fragment) => {
      // A page inside a frame of another has no address of its own.
      if (location.protocol !== "about:") history.replaceState(null, "", `#${fragment}`);
    },
    ask: null,
    around: null,
  });
  addEventListener("hashchange", () => explorer.open(location.hash.slice(1)));
  document.addEventListener("keydown", (event) => {
    if (event.target === document.body) explorer.key(event);
  });
  document.documentElement.dataset.ready = "true";
}

const host = document.getElementById("headscope");
if (host) start(host).catch((error: unknown) => showProblem(host, error));
