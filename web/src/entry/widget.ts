// Notebook widget (anywidget): data from the kernel's model, the rest on request.

import { kernelBackend, type WidgetModel } from "../data/backend.ts";
import { bufferReader } from "../data/decode.ts";
import { parseHeader } from "../data/parse.ts";
import { openTraces } from "../data/trace.ts";
import { Session } from "../state/session.ts";
import { showError } from "../view/error_message.tsx";
import { type Mounted, mount } from "../view/explorer.tsx";

/** Hide the static picture that a closed notebook shows. */
function hideStill(model: WidgetModel): void {
  for (const still of document.querySelectorAll<HTMLElement>(
    `.headscope-still-${model.get("static_id")}`,
  )) {
    const output = still.closest<HTMLElement>(".jp-OutputArea-child, .output_area") ?? still;
    output.style.display = "none";
  }
}

async function render({ model, el }: { model: WidgetModel; el: HTMLElement }): Promise<() => void> {
  const host = document.createElement("div");
  // JupyterLab handles keys first unless this attribute is set; it keeps Control-S.
  const guard = (event: KeyboardEvent) =>
    host.toggleAttribute("data-lm-suppress-shortcuts", !(event.ctrlKey || event.metaKey));
  addEventListener("keydown", guard, true);
  Object.assign(host.style, { display: "block", height: `${model.get("height")}px` });
  el.append(host);
  const backend = kernelBackend(model);
  let explorer: Mounted | null = null;
  let session: Session | null = null;
  const follow = () => {
    const selection = model.get("selection") as string;
    if (session && selection !== session.store.fragment) session.store.open(selection);
  };
  const read = (text: string) => {
    const now = session;
    if (!now) return;
    const { signal } = new AbortController();
    void now.requests.run("The model is reading …", signal, () => backend.read(text));
  };
  /** Show what the model's traits hold: the first text, or another that was read. */
  const show = async () => {
    const header = parseHeader(model.get("header") as string);
    const buffers = (model.get("buffers") as DataView<ArrayBuffer>[]).map(
      (view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength),
    );
    const traces = await openTraces(
      header,
      bufferReader((index) => buffers[index] ?? null),
    );
    explorer?.dispose();
    session = new Session(header, traces, backend, model.get("selection") as string);
    explorer = mount(host, session, {
      changed(selection) {
        if (selection === model.get("selection")) return;
        model.set("selection", selection);
        model.save_changes();
      },
      lab: header.examples[0].traces.length === 1 ? { read } : null,
      around: el,
    });
  };
  const refresh = () => void show().catch((error: unknown) => showError(host, error));
  try {
    await show();
    hideStill(model);
    model.on("change:selection", follow);
    model.on("change:header", refresh);
  } catch (error) {
    showError(host, error);
  }
  return () => {
    backend.stop();
    model.off("change:selection", follow);
    model.off("change:header", refresh);
    explorer?.dispose();
    removeEventListener("keydown", guard, true);
  };
}

export default { render };
