// The top bar: what is shown, which view, and the buttons that act on the whole explorer.

import type { Selection } from "../state/selection.ts";
import { blockOf } from "../state/selection.ts";
import { make, quiet, segments } from "./element.ts";
import type { Scope } from "./scope.ts";

export interface ToolbarActions {
  search(): void;
  help(): void;
  exportAs(format: "svg" | "png"): void;
  cycleTheme(): void;
}

export class Toolbar {
  private readonly views;
  private readonly compare;
  private readonly theme: HTMLButtonElement;
  private readonly facts = make("span", { class: "facts" });
  readonly element: HTMLElement;

  constructor(
    private readonly scope: Scope,
    actions: ToolbarActions,
    search: HTMLElement,
  ) {
    const { store, traces } = scope;
    this.views = segments(
      "View",
      [
        { value: "all", label: "All", title: "All three views (1)" },
        { value: "model", label: "Model", title: "Every head of every layer (2)" },
        { value: "head", label: "Head", title: "Heads of one layer (3)" },
        { value: "neurons", label: "Neurons", title: "How one query finds its keys (4)" },
      ],
      (view) => store.update({ view: view as Selection["view"] }),
    );
    this.compare = segments(
      "Traces",
      [
        { value: "both", label: "Both", title: "Both traces side by side" },
        { value: "first", label: "First", title: traces[0].title },
        { value: "second", label: "Second", title: traces[1]?.title ?? "" },
        { value: "difference", label: "Difference" },
      ],
      (compare) => store.update({ compare: compare as Selection["compare"] }),
    );
    this.theme = quiet("Auto", "Light, dark, or as the page around it (T)", actions.cycleTheme);
    const help = quiet("?", "Keyboard and help (?)", actions.help);
    help.setAttribute("aria-label", "? Keyboard and help");
    const title = make("span", { class: "title", text: traces[0].model, title: traces[0].title });
    this.element = make(
      "header",
      { class: "bar" },
      make("h1", { class: "brand", text: "headscope" }),
      title,
      this.facts,
      this.views.element,
      traces.length > 1 ? this.compare.element : null,
      make("span", { class: "spring" }),
      search,
      make(
        "div",
        { class: "buttons" },
        this.theme,
        quiet("SVG", "Save what is shown as SVG", () => actions.exportAs("svg")),
        quiet("PNG", "Save what is shown as PNG", () => actions.exportAs("png")),
        help,
      ),
    );
  }

  render(): void {
    const { selection } = this.scope.store;
    const block = blockOf(this.scope.traces[this.scope.leading], selection);
    this.views.set(selection.view);
    this.compare.set(selection.compare);
    const difference = this.compare.element.lastElementChild as HTMLButtonElement;
    difference.disabled = !this.scope.comparable;
    difference.title = difference.disabled
      ? "The two traces differ in their number of tokens, layers or heads"
      : "The second minus the first";
    this.theme.textContent = { auto: "Auto", light: "Light", dark: "Dark" }[selection.theme];
    this.theme.setAttribute("aria-label", `Theme: ${selection.theme}`);
    const tokens = block.queryTokens.texts.length;
    const plural = tokens === 1 ? "token" : "tokens";
    this.facts.textContent = `${block.layers.length}×${block.heads} heads · ${tokens} ${plural}`;
  }
}
