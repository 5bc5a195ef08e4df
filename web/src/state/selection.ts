// The one selection that all views share: what is looked at, and through which filters.

import type { Block, Trace } from "../data/trace.ts";

export const VIEWS = ["all", "model", "head", "neurons"] as const;
export const COMPARISONS = ["both", "first", "second", "difference"] as const;
export const PAIRS = ["all", "aa", "ab", "ba", "bb"] as const;
export const UNITS = ["token", "word"] as const;
export const COMBINES = ["each", "mean", "max"] as const;
export const OVERS = ["heads", "layers", "both"] as const;
export const FORMS = ["lines", "matrix"] as const;
export const ORDERS = ["number", "contribution"] as const;
export const THEMES = ["auto", "light", "dark"] as const;

export interface Selection {
  readonly view: (typeof VIEWS)[number];
  /** Which of two traces; ignored where there is one. */
  readonly compare: (typeof COMPARISONS)[number];
  readonly block: string;
  /** The layer's own number. */
  readonly layer: number;
  /** Heads of the layer, in order; the first is the one the neuron view shows. */
  readonly heads: readonly number[];
  /** Pinned token positions. */
  readonly queries: readonly number[];
  readonly keys: readonly number[];
  readonly pair: (typeof PAIRS)[number];
  /** Weights below it are not drawn. */
  readonly threshold: number;
  /** Only the strongest keys of each query; 0 for all. */
  readonly top: number;
  readonly unit: (typeof UNITS)[number];
  readonly specials: boolean;
  readonly combine: (typeof COMBINES)[number];
  readonly over: (typeof OVERS)[number];
  readonly form: (typeof FORMS)[number];
  /** Statistic that orders the model view; empty for the order of the model. */
  readonly sort: string;
  /** Statistic that colors the model view; empty for none. */
  readonly color: string;
  readonly order: (typeof ORDERS)[number];
  readonly theme: (typeof THEMES)[number];
}

/** The selection that a page without a fragment opens with. */
export function defaultSelection(traces: readonly Trace[]): Selection {
  const block = traces[0].blocks[0];
  return {
    view: "all",
    compare: "both",
    block: block.name,
    layer: block.layers[0],
    heads: [0],
    queries: [],
    keys: [],
    pair: "all",
    threshold: 0,
    top: 0,
    unit: "token",
    specials: true,
    combine: "each",
    over: "heads",
    form: "lines",
    sort: "",
    color: "",
    order: "number",
    theme: "auto",
  };
}

export function blockOf(trace: Trace, selection: Selection): Block {
  return trace.blocks.find((block) => block.name === selection.block) ?? trace.blocks[0];
}

export function layerIndex(block: Block, selection: Selection): number {
  return Math.max(0, block.layers.indexOf(selection.layer));
}

/** The heads that a layer has. */
export function headsOf(block: Block, index: number): number[] {
  return Array.from({ length: block.heads }, (_, head) => head).filter((h) => block.has(index, h));
}

/** The selection with everything that these traces do not have put right. */
export function fitSelection(selection: Selection, traces: readonly Trace[]): Selection {
  const block = blockOf(traces[0], selection);
  const layer = block.layers.includes(selection.layer) ? selection.layer : block.layers[0];
  const index = block.layers.indexOf(layer);
  const heads = selection.heads.filter((h) => h >= 0 && h < block.heads && block.has(index, h));
  const nQueries = block.queryTokens.texts.length;
  const nKeys = block.keyTokens.texts.length;
  const hasPair = block.name !== "cross" && new Set(block.queryTokens.segments).size > 1;
  const known = (name: string) => (Object.hasOwn(block.statistics, name) ? name : "");
  return {
    ...selection,
    block: block.name,
    layer,
    heads: heads.length > 0 ? heads : [headsOf(block, index)[0] ?? 0],
    queries: selection.queries.filter((q) => q >= 0 && q < nQueries),
    keys: selection.keys.filter((k) => k >= 0 && k < nKeys),
    pair: hasPair ? selection.pair : "all",
    sort: known(selection.sort),
    color: known(selection.color),
  };
}
