// The one selection that all views share: what is looked at, and through which filters.

import { type Filter, NO_FILTER } from "../data/lens.ts";
import type { Block, Trace } from "../data/trace.ts";
import { isResting } from "../data/words.ts";

export const TABS = ["lines", "matrix", "neurons", "evidence", "effect"] as const;
export const COLORS = ["role", "effect", "spread", "distance"] as const;
export const SOURCES = ["corpus", "text"] as const;
export const THEMES = ["auto", "light", "dark"] as const;

export type Tab = (typeof TABS)[number];
export type ColorBy = (typeof COLORS)[number];

export interface HeadId {
  /** The layer's own number. */
  readonly layer: number;
  readonly head: number;
}

/** A change of the model. */
export type Edit = HeadId &
  (
    | { readonly kind: "off" }
    | {
        readonly kind: "cell";
        readonly block: string;
        readonly query: number;
        readonly key: number;
        readonly weight: number;
      }
    | { readonly kind: "neuron"; readonly neuron: number; readonly factor: number }
  );

export interface Selection extends HeadId {
  /** Heads whose mean with the chosen one is shown. */
  readonly also: readonly HeadId[];
  /** Whether all heads stand in the order of what they are colored by. */
  readonly sorted: boolean;
  /** Whether a matrix of two inputs is their difference, B − A. */
  readonly minus: boolean;
  readonly example: number;
  readonly block: string;
  /** Pinned token positions: who reads, and what is read. */
  readonly word: number | null;
  readonly key: number | null;
  /** Null for what suits the length of the text. */
  readonly tab: Tab | null;
  readonly color: ColorBy;
  /** What roles are named from, where there is a corpus. */
  readonly named: (typeof SOURCES)[number];
  /** The role that is filtered by: its name, "unnamed", or empty for all. */
  readonly role: string;
  /** The answer that the prediction is held against; empty for all others. */
  readonly against: string;
  readonly edits: readonly Edit[];
  /** Step of the story from 1 on; 0 before it, -1 when it is closed. */
  readonly story: number;
  readonly theme: (typeof THEMES)[number];
  /** What a small screen shows: 1 all heads, 2 this head, 3 effect; 4 is the sentence alone. */
  readonly pane: number;
  /** Which of two inputs a small screen shows. */
  readonly side: number;
  readonly filter: Filter;
  /** Without bars, for slides and frames. */
  readonly embed: boolean;
}

/** Named as the report names heads. */
export function headName({ layer, head }: HeadId): string {
  return `L${layer} H${head}`;
}

export function headCode({ layer, head }: HeadId): string {
  return `L${layer}H${head}`;
}

export function isSameHead(a: HeadId, b: HeadId): boolean {
  return a.layer === b.layer && a.head === b.head;
}

/** The selection that a page without a fragment opens with: the head with the strongest role that
 *  is not a resting place. */
export function defaultSelection(trace: Trace): Selection {
  const block = trace.blocks[0];
  let [best, layer, head] = [-1, block.layers[0], 0];
  block.roles.heads.forEach((row, index) => {
    row.forEach(({ role, share }, h) => {
      const strength = role && role !== "broad" && !isResting(role) ? (share ?? 0) : -1;
      if (strength > best) [best, layer, head] = [strength, block.layers[index], h];
    });
  });
  return {
    example: 0,
    block: block.name,
    layer,
    head,
    also: [],
    sorted: false,
    minus: false,
    word: null,
    key: null,
    tab: null,
    color: "role",
    named: "corpus",
    role: "",
    against: "",
    edits: [],
    story: 0,
    theme: "auto",
    pane: 2,
    side: 0,
    filter: NO_FILTER,
    embed: false,
  };
}

export function blockOf(trace: Trace, name: string): Block {
  return trace.blocks.find((block) => block.name === name) ?? trace.blocks[0];
}

/** The selection with everything that this trace does not have put right. */
export function fitSelection(selection: Selection, trace: Trace): Selection {
  const block = blockOf(trace, selection.block);
  const layer = block.layers.includes(selection.layer) ? selection.layer : block.layers[0];
  const index = block.layers.indexOf(layer);
  const fits = (head: number) => head >= 0 && head < block.heads && block.has(index, head);
  const first = Array.from({ length: block.heads }, (_, head) => head).find(fits) ?? 0;
  const isThere = (id: HeadId) => block.has(block.layers.indexOf(id.layer), id.head);
  const within = (position: number | null, count: number) =>
    position !== null && position < count ? position : null;
  return {
    ...selection,
    block: block.name,
    layer,
    head: fits(selection.head) ? selection.head : first,
    word: within(selection.word, block.queryTokens.texts.length),
    key: within(selection.key, block.keyTokens.texts.length),
    also: selection.also.filter(isThere),
    edits: selection.edits.filter(isThere),
  };
}

/** Whether a later edit replaces an earlier one. */
export function isSamePlace(a: Edit, b: Edit): boolean {
  if (a.kind !== b.kind || !isSameHead(a, b)) return false;
  if (a.kind === "cell" && b.kind === "cell") {
    return a.query === b.query && a.key === b.key && a.block === b.block;
  }
  return a.kind !== "neuron" || b.kind !== "neuron" || a.neuron === b.neuron;
}
