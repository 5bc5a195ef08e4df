// The web app of `headscope serve`: a line to type in, and the explorer under it.

import { askTrace, Refusal, type Wish } from "../data/server.ts";
import { applyTheme, themeOf } from "../paint/theme.ts";
import { make } from "../view/element.ts";
import { Explorer } from "../view/explorer.ts";
import { type Chosen, Form, type ServedModel } from "../view/form.ts";
import { showProblem } from "../view/problem.ts";

interface Start {
  readonly models: ServedModel[];
  readonly text: string;
}

function start(host: HTMLElement, { models, text }: Start): void {
  let explorer: Explorer | null = null;
  const chosen = (): Chosen => {
    if (!explorer) return { heads: [], label: "" };
    const { layer, heads } = explorer.selection;
    const label = heads.length > 4 ? `${heads.length} heads` : heads.map((h) => `H${h}`).join(" ");
    return {
      heads: heads.map((head) => [layer, head] as const),
      label: heads.length ? `L${layer} ${label}` : "",
    };
  };
  const form = new Form(models, chosen, (wish) => void show(wish));
  const stage = make("div", { class: "stage" });
  const paint = () => applyTheme(form.root, themeOf(explorer?.schemeNow ?? Explorer.system()));
  const show = async (wish: Wish) => {
    form.say("The model is reading …", "busy");
    try {
      const { header, traces, ask } = await askTrace(wish);
      const view = make("div");
      explorer?.dispose();
      stage.replaceChildren(view);
      const fragment = location.hash.length > 1 ? location.hash.slice(1) : header.selection;
      const changed = (now: string) => {
        history.replaceState(null, "", `#${now}`);
        form.follow();
        paint();
      };
      explorer = new Explorer(view, traces, { fragment, changed, ask, around: null });
      form.say("");
    } catch (error) {
      if (error instanceof Refusal) form.say(error.message, "problem");
      else {
        explorer?.dispose();
        explorer = null;
        showProblem(stage, error);
      }
    }
    paint();
    document.documentElement.dataset.ready = "true";
  };
  host.replaceChildren(form.host, stage);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  paint();
  form.value = text;
  if (text)
    void show({ model: models[0].name, text, pair: "", target: "", generate: 0, ablate: [] });
  else form.focus();
}

const host = document.getElementById("headscope");
const given = document.getElementById("headscope-start")?.textContent ?? "";
if (host) {
  try {
    start(host, JSON.parse(given) as Start);
  } catch (error) {
    showProblem(host, error);
  }
}
