// The lab: asks the server for traces and opens an explorer on each.

import { render } from "preact";
import { Refusal } from "../data/asker.ts";
import { askTrace, type Wish } from "../data/server.ts";
import { applyTheme, themeOf } from "../paint/theme.ts";
import { Session } from "../state/session.ts";
import { formatWish, parseWish } from "../state/wish.ts";
import { make } from "./element.ts";
import { type Mounted, mount } from "./explorer.tsx";
import { type LabExample, LabForm, type ServedModel } from "./lab_form.tsx";
import { showProblem } from "./problem.ts";
import { sheet } from "./style/sheet.ts";

/** The data that a lab page starts with. */
export interface LabStart {
  readonly models: readonly ServedModel[];
  readonly examples: readonly LabExample[];
  /** What it opens with; empty for an example. */
  readonly first: Wish["inputs"];
  readonly limits: { readonly tokens: number; readonly seconds: number };
}

export class Lab {
  private readonly stage = make("div", { class: "stage" });
  private readonly dialog = make("div");
  private readonly root: HTMLElement;
  private session: Session | null = null;
  private explorer: Mounted | null = null;
  private running = new AbortController();
  private wish: Wish;

  constructor(
    host: HTMLElement,
    private readonly start: LabStart,
  ) {
    const shadow = this.dialog.attachShadow({ mode: "open" });
    const style = new CSSStyleSheet();
    style.replaceSync(`${sheet}\n:host { position: static; height: auto; }`);
    shadow.adoptedStyleSheets = [style];
    this.root = make("div");
    shadow.append(this.root);
    host.replaceChildren(this.stage, this.dialog);
    const usual = start.models[0].name;
    const asked = parseWish(location.hash.slice(1), usual);
    const example = start.examples.at(0);
    const given: Wish = start.first.length
      ? { model: usual, inputs: start.first }
      : { model: example?.model ?? usual, inputs: example?.inputs ?? [{ text: "" }] };
    this.wish = asked ?? given;
    document.addEventListener("keydown", (event) => {
      if (event.target === document.body) this.explorer?.key(event);
    });
    addEventListener("hashchange", () => {
      const wish = parseWish(location.hash.slice(1), usual);
      const isNew = wish && JSON.stringify(wish) !== JSON.stringify(this.wish);
      if (isNew) void this.ask(wish, location.hash.slice(1));
      else this.session?.open(location.hash.slice(1));
    });
    if (this.wish.inputs[0].text) void this.ask(this.wish, location.hash.slice(1));
    else {
      this.edit();
      document.documentElement.dataset.ready = "true";
    }
  }

  /** Show the form, with what was said against the last wish. */
  private edit(problem = ""): void {
    const { models, examples, limits } = this.start;
    const scheme = this.session?.theme.peek().scheme ?? systemScheme();
    applyTheme(this.root, themeOf(scheme));
    this.root.className = "root";
    this.stage.inert = true;
    render(
      <LabForm
        {...{ models, examples, limits, problem }}
        wish={this.wish}
        isFirst={this.session === null}
        ask={(wish) => void this.ask(wish, "")}
        close={() => this.close()}
      />,
      this.root,
    );
  }

  private close(): void {
    render(null, this.root);
    this.root.className = "";
    this.stage.inert = false;
  }

  /** Let the model read; a newer wish ends an older one. */
  private async ask(wish: Wish, fragment: string): Promise<void> {
    this.running.abort();
    this.running = new AbortController();
    const { signal } = this.running;
    const before = this.session;
    this.wish = wish;
    this.close();
    if (before) before.busy.value = "The model is reading …";
    try {
      const { header, traces, asker } = await askTrace(wish, signal);
      if (signal.aborted) return;
      // A text that was typed is a place of its own: Back returns to the one before.
      if (before && fragment === "") history.pushState(null, "", location.href);
      const view = make("div");
      this.explorer?.dispose();
      this.stage.replaceChildren(view);
      this.session = new Session(header, traces, asker, fragment);
      this.explorer = mount(view, this.session, {
        changed: (now) => history.replaceState(null, "", `#${formatWish(wish)}&${now}`),
        lab: { editText: () => this.edit() },
        around: null,
      });
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refusal) this.edit(error.message);
      else {
        this.explorer?.dispose();
        this.explorer = null;
        showProblem(this.stage, error);
      }
    }
    if (before) before.busy.value = "";
    document.documentElement.dataset.ready = "true";
  }
}

function systemScheme(): "light" | "dark" {
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}
