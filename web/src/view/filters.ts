// The filter bar: which attention, in which units, how much of it, and what is combined.

import { blockOf, type Selection } from "../state/selection.ts";
import { make, quiet, segments, select } from "./element.ts";
import type { Scope } from "./scope.ts";

const PAIR_LABELS = { all: "All", aa: "A→A", ab: "A→B", ba: "B→A", bb: "B→B" };

export class Filters {
  private readonly block;
  private readonly unit;
  private readonly pair;
  private readonly combine;
  private readonly top;
  private readonly specials = make("input", { attributes: { type: "checkbox" } });
  private readonly threshold = make("input", {
    attributes: { type: "range", min: "0", max: "0.5", step: "0.01", "aria-label": "Threshold" },
  });
  private readonly thresholdValue = make("output");
  private readonly specialsField: HTMLElement;
  private readonly clear: HTMLButtonElement;
  readonly element: HTMLElement;

  constructor(private readonly scope: Scope) {
    const { store, traces } = scope;
    const blocks = traces[0].blocks;
    const change = (changes: Partial<Selection>) => store.update(changes);
    this.block = segments(
      "Attention",
      blocks.map(({ name }) => ({ value: name, label: capital(name), title: `${name} attention` })),
      (block) => change({ block, queries: [], keys: [] }),
    );
    this.unit = segments(
      "Unit",
      [
        { value: "token", label: "Tokens", title: "The model's tokens (W)" },
        {
          value: "word",
          label: "Words",
          title: "Words: attention to one is summed, from one averaged (W)",
        },
      ],
      (unit) => change({ unit: unit as Selection["unit"] }),
    );
    this.pair = segments(
      "Sentence pair",
      Object.entries(PAIR_LABELS).map(([value, label]) => ({ value, label })),
      (pair) => change({ pair: pair as Selection["pair"] }),
    );
    this.specials.addEventListener("change", () => change({ specials: this.specials.checked }));
    this.threshold.addEventListener("input", () =>
      change({ threshold: Number(this.threshold.value) }),
    );
    this.top = select(
      "Keys per query",
      [0, 1, 2, 3, 5, 10].map((n) => ({ value: String(n), label: n === 0 ? "all" : String(n) })),
      (top) => change({ top: Number(top) }),
    );
    this.combine = select(
      "Combine",
      [
        { value: "each/heads", label: "nothing" },
        { value: "mean/heads", label: "mean of heads" },
        { value: "max/heads", label: "maximum of heads" },
        { value: "mean/layers", label: "mean of layers" },
        { value: "max/layers", label: "maximum of layers" },
        { value: "mean/both", label: "mean of all" },
        { value: "max/both", label: "maximum of all" },
      ],
      (value) => {
        const [combine, over] = value.split("/");
        change({ combine, over } as Partial<Selection>);
      },
    );
    this.specialsField = make(
      "label",
      { class: "field", title: "Hidden, the rest of each row is renormalized (S)" },
      this.specials,
      make("span", { text: "Special tokens" }),
    );
    this.clear = quiet("Reset", "Clear pins and filters (Escape, twice)", () => change(CLEARED));
    this.element = make(
      "div",
      { class: "filters", attributes: { role: "toolbar", "aria-label": "Filters" } },
      blocks.length > 1 ? this.block.element : null,
      this.unit.element,
      this.specialsField,
      this.pair.element,
      make(
        "label",
        { class: "field", title: "Weights below it are not drawn ([ ])" },
        make("span", { text: "Threshold" }),
        this.threshold,
        this.thresholdValue,
      ),
      this.top.element,
      this.combine.element,
      this.clear,
    );
  }

  render(): void {
    const { selection } = this.scope.store;
    const { queryTokens, keyTokens, name } = blockOf(this.scope.traces[0], selection);
    this.block.set(selection.block);
    this.unit.set(selection.unit);
    this.pair.set(selection.pair);
    this.pair.element.hidden = name === "cross" || new Set(queryTokens.segments).size < 2;
    this.specials.checked = selection.specials;
    this.specialsField.hidden = ![...queryTokens.special, ...keyTokens.special].some(Boolean);
    const hasWords = queryTokens.groups.length < queryTokens.texts.length;
    this.unit.element.hidden = !hasWords && selection.unit === "token";
    this.threshold.value = String(selection.threshold);
    this.thresholdValue.textContent = selection.threshold.toFixed(2);
    this.top.set(String(selection.top));
    this.combine.set(
      `${selection.combine}/${selection.combine === "each" ? "heads" : selection.over}`,
    );
    this.clear.hidden = !isFiltered(selection);
  }
}

/** No pins and no filters. */
export const CLEARED: Partial<Selection> = {
  queries: [],
  keys: [],
  pair: "all",
  threshold: 0,
  top: 0,
  specials: true,
  combine: "each",
};

function isFiltered(selection: Selection): boolean {
  const { queries, keys, pair, threshold, top, specials, combine } = selection;
  const pinned = queries.length + keys.length > 0;
  return pinned || pair !== "all" || threshold > 0 || top > 0 || !specials || combine !== "each";
}

function capital(name: string): string {
  return name.charAt(0).toUpperCase() + name.slice(1);
}
