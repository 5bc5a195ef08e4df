// Live page: stored traces at once, and a model inside the page that reads typed texts.

import { LiveModel } from "../data/live.ts";
import { openDocument } from "../data/trace.ts";
import { showError } from "../view/error_message.tsx";
import { Lab } from "../view/lab.tsx";

/** Facts about the device that some browsers tell. */
type Device = Readonly<{ deviceMemory?: number; connection?: { saveData?: boolean } }>;

/** Whether the model may be loaded unasked. */
function isRoomy(memory: number): boolean {
  const { deviceMemory, connection } = navigator as Device;
  return !connection?.saveData && memory < (deviceMemory ?? 8) * 0.5e9;
}

async function start(host: HTMLElement): Promise<void> {
  const { header, traces, readBuffer } = await openDocument();
  const model = new LiveModel(header, readBuffer);
  const { live } = model;
  const text = (trace: number) => live.texts[trace] ?? header.traces[trace].title;
  const lab = {
    models: [
      {
        name: live.model,
        title: live.model,
        pairs: false,
        targets: false,
        generates: false,
        predicts: live.kind !== "vector",
      },
    ],
    examples: header.examples.map(({ title, traces: shown }) => ({
      title,
      inputs: shown.map((trace) => ({ text: text(trace) })),
    })),
    first: [],
    limits: { tokens: live.max_tokens },
  };
  if (isRoomy(live.memory)) void model.start().catch(() => {});
  new Lab(host, lab, {
    requestTrace: (request, signal) => model.requestTrace(request, signal),
    stored: { header, traces, backend: await model.storedBackend(traces) },
  });
}

const host = document.getElementById("headscope");
if (host) start(host).catch((error: unknown) => showError(host, error));
