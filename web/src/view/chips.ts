// The layer chooser and one chip per head: click toggles, double click isolates.

import type { Block } from "../data/trace.ts";
import { cssOf } from "../paint/color.ts";
import { blockOf, headsOf, layerIndex } from "../state/selection.ts";
import { make, quiet } from "./element.ts";
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
  private readonly all = quiet("All", "All heads of the layer (A)", () => this.selectAll());
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
      this.build(block, index);
    }
    this.layer.value = String(selection.layer);
    for (const chip of this.chips.children) {
      const head = Number((chip as HTMLElement).dataset.head);
      chip.setAttribute("aria-pressed", String(selection.heads.includes(head)));
    }
    this.all.hidden = block.heads < 2;
    const { length: count } = headsOf(block, index);
    this.all.textContent = selection.heads.length === count ? "One" : "All";
  }

  selectAll(): void {
    const { store } = this.scope;
    const block = blockOf(this.scope.traces[this.scope.leading], store.selection);
    const index = layerIndex(block, store.selection);
    const heads = headsOf(block, index);
    const isAll = store.selection.heads.length === heads.length;
    store.update({ heads: isAll ? [store.selection.heads[0]] : heads });
  }

  private build(block: Block, index: number): void {
    this.layer.replaceChildren(
      ...block.layers.map((layer) =>
        make("option", { text: String(layer), attributes: { value: String(layer) } }),
      ),
    );
    const colors = this.scope.theme.heads(block.heads);
    const chips = headsOf(block, index).map((head) => {
      const swatch = make("i");
      swatch.style.background = cssOf(colors[head]);
      swatch.style.borderColor = cssOf(colors[head]);
      return make(
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
      );
    });
    this.chips.replaceChildren(...chips);
    this.chips.classList.toggle("many", block.heads > 16);
  }

  private toggle(head: number): void {
    const { heads } = this.scope.store.selection;
    const rest = heads.filter((other) => other !== head);
    const next = rest.length < heads.length ? rest : [...heads, head].sort((a, b) => a - b);
    this.scope.store.update({ heads: next.length > 0 ? next : [head] });
  }
}
