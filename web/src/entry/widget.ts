// The notebook widget (anywidget): data from the kernel's model, exact rows on request.

import { asker, type Model } from "../data/kernel.ts";
import { parseHeader } from "../data/payload.ts";
import { openTraces } from "../data/trace.ts";
import { make } from "../view/element.ts";
import { Explorer } from "../view/explorer.ts";
import { showProblem } from "../view/problem.ts";

/** The picture that a closed notebook shows is not needed while the widget lives. */
function hideStill(model: Model): void {
  for (const still of document.querySelectorAll<HTMLElement>(
    `.headscope-still-${model.get("static_id")}`,
  )) {
    const output = still.closest<HTMLElement>(".jp-OutputArea-child, .output_area") ?? still;
    output.style.display = "none";
  }
}

async function render({ model, el }: { model: Model; el: HTMLElement }): Promise<() => void> {
  const host = make("div");
  // JupyterLab takes keys before anyone else, unless it is asked not to; Control-S stays its own.
  const guard = (event: KeyboardEvent) =>
    host.toggleAttribute("data-lm-suppress-shortcuts", !(event.ctrlKey || event.metaKey));
  addEventListener("keydown", guard, true);
  Object.assign(host.style, { display: "block", height: `${model.get("height")}px` });
  el.append(host);
  const { ask, stop } = asker(model);
  let explorer: Explorer | null = null;
  const follow = () => explorer?.follow(model.get("selection") as string);
  try {
    const header = parseHeader(model.get("header") as string);
    const packed = (model.get("buffers") as DataView<ArrayBuffer>[]).map(
      (view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength),
    );
    const traces = await openTraces(header, packed);
    const changed = (selection: string) => {
      model.set("selection", selection);
      model.save_changes();
    };
    const fragment = (model.get("selection") as string) || header.selection;
    explorer = new Explorer(host, traces, { fragment, changed, ask, around: el });
    hideStill(model);
    model.on("change:selection", follow);
  } catch (error) {
    showProblem(host, error);
  }
  return () => {
    stop();
    model.off("change:selection", follow);
    explorer?.dispose();
    removeEventListener("keydown", guard, true);
  };
}

export default { render };
