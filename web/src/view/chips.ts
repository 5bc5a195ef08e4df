// The layer chooser and one chip per head: click toggles, double click isolates.

import { cssOf } from "../paint/color.ts";
import { blockOf, layerIndex } from "../state/selection.ts";
import { make } from "./element.ts";
import type { Scope } from "./scope.ts";

export class HeadChips {
  private readonly layer = make("select", {
    attributes: { "aria-label": "Layer" },
    on: { change: () => this.scope.store.update({ layer: Number(this.layer.value) }) },
  });
  private readonly chips = make("div", {
    class: "chips",
    attributes: { role: "group", "aria-label": "Heads: click toggles, double click isolates" },
  });
  private readonly all = make("button", {
    class: "quiet",
    text: "All",
    title: "All heads of the layer (A)",
    attributes: { type: "button" },
    on: { click: () => this.selectAll() },
  });
  readonly element = make(
    "div",
    { class: "chooser" },
    make("label", { class: "field" }, make("span", { text: "Layer" }), this.layer),
    this.chips,
    this.all,
  );
  private built = "";

  constructor(private readonly scope: Scope) {}

  render(): void {
    const { selection } = this.scope.store;
    const block = blockOf(this.scope.traces[this.scope.leading], selection);
    const index = layerIndex(block, selection);
    const key = `${block.name}/${index}/${this.scope.theme.scheme}/${this.scope.leading}`;
    if (key !== this.built) {
      this.built = key;
      this.build(block.layers, block.heads, (head) => block.has(index, head));
    }
    this.layer.value = String(selection.layer);
    for (const chip of this.chips.children) {
      const head = Number((chip as HTMLElement).dataset.head);
      chip.setAttribute("aria-pressed", String(selection.heads.includes(head)));
    }
    this.all.hidden = block.heads < 2;
    const count = Array.from({ length: block.heads }, (_, h) => h).filter((h) =>
      block.has(index, h),
    );
    this.all.textContent = selection.heads.length === count.length ? "One" : "All";
  }

  selectAll(): void {
    const { store } = this.scope;
    const block = blockOf(this.scope.traces[this.scope.leading], store.selection);
    const index = layerIndex(block, store.selection);
    const heads = Array.from({ length: block.heads }, (_, h) => h).filter((h) =>
      block.has(index, h),
    );
    const isAll = store.selection.heads.length === heads.length;
    store.update({ heads: isAll ? [store.selection.heads[0]] : heads });
  }

  private build(layers: readonly number[], heads: number, has: (head: number) => boolean): void {
    this.layer.replaceChildren(
      ...layers.map((layer) =>
        make("option", { text: String(layer), attributes: { value: String(layer) } }),
      ),
    );
    const colors = this.scope.theme.heads(heads);
    const chips: HTMLElement[] = [];
    for (let head = 0; head < heads; head++) {
      if (!has(head)) continue;
      const swatch = make("i");
      swatch.style.background = cssOf(colors[head]);
      swatch.style.borderColor = cssOf(colors[head]);
      chips.push(
        make(
          "button",
          {
            class: "chip",
            title: `Head ${head}: click toggles, double click isolates`,
            attributes: {
              type: "button",
              "data-head": String(head),
              "aria-pressed": "false",
              "aria-label": `Head ${head}`,
            },
            on: {
              click: () => this.toggle(head),
              dblclick: () => this.scope.store.update({ heads: [head] }),
            },
          },
          swatch,
          make("span", { text: String(head) }),
        ),
      );
    }
    this.chips.replaceChildren(...chips);
    this.chips.classList.toggle("many", heads > 16);
  }

  private toggle(head: number): void {
    const { heads } = this.scope.store.selection;
    const rest = heads.filter((other) => other !== head);
    const next = rest.length < heads.length ? rest : [...heads, head].sort((a, b) => a - b);
    this.scope.store.update({ heads: next.length > 0 ? next : [head] });
  }
}
