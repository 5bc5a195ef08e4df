// The selection that all views share, and its URL fragment.

import { type Filter, NO_FILTER } from "../data/filtered_block.ts";
import { isSink } from "../data/head_summary.ts";
import type { Block, Trace } from "../data/trace.ts";

export const TABS = ["lines", "matrix", "wires", "neurons", "evidence", "effect"] as const;
export const COLORS = ["role", "effect", "difference", "spread", "distance"] as const;
const SOURCES = ["corpus", "text"] as const;
export const THEMES = ["auto", "light", "dark"] as const;

export type Tab = (typeof TABS)[number];
export type ColorBy = (typeof COLORS)[number];

export interface HeadId {
  readonly layer: number;
  readonly head: number;
}

export type Edit = HeadId & { readonly block: string } & (
    | { readonly kind: "off" }
    | {
        readonly kind: "cell";
        readonly query: number;
        readonly key: number;
        readonly weight: number;
      }
    | { readonly kind: "neuron"; readonly neuron: number; readonly factor: number }
  );

/** Maximum heads drawn over one another, each in its own hue. */
export const MAX_HEADS = 6;

export interface Selection extends HeadId {
  /** Heads drawn over the chosen one; with `mean`, averaged with it. */
  readonly also: readonly HeadId[];
  readonly mean: boolean;
  /** Whether heads are sorted by the value that colors them. */
  readonly sorted: boolean;
  /** Whether two inputs are shown as their difference, B − A. */
  readonly minus: boolean;
  readonly example: number;
  readonly block: string;
  readonly word: number | null;
  readonly key: number | null;
  /** Null for the tab that suits the length of the text. */
  readonly tab: Tab | null;
  /** Chosen wire from 1; 0 without one. */
  readonly wire: number;
  readonly color: ColorBy;
  readonly named: (typeof SOURCES)[number];
  /** Role to filter by: its id, "unnamed", or empty for all. */
  readonly role: string;
  readonly against: string;
  readonly edits: readonly Edit[];
  /** Whether the other answers of the prediction are listed. */
  readonly answers: boolean;
  /** Step of the story from 1; 0 before it, -1 when closed. */
  readonly story: number;
  /** Question of the exercise from 1; 0 without one. */
  readonly exercise: number;
  readonly theme: (typeof THEMES)[number];
  /** Pane of a small screen: 1 all heads, 2 this head, 3 effect; 4 is the sentence alone. */
  readonly pane: number;
  readonly side: number;
  readonly filter: Filter;
  readonly embed: boolean;
}

export function headName({ layer, head }: HeadId): string {
  return `L${layer} H${head}`;
}

export function headCode({ layer, head }: HeadId): string {
  return `L${layer}H${head}`;
}

export function isSameHead(a: HeadId, b: HeadId): boolean {
  return a.layer === b.layer && a.head === b.head;
}

/** Selection of a page without a fragment: the head with the strongest role that is not a sink;
 *  heads are colored by what the page compares or measured. */
export function defaultSelection(trace: Trace, isPair = false): Selection {
  const block = trace.blocks[0];
  let [best, layer, head] = [-1, block.layers[0], 0];
  block.roles.heads.forEach((row, index) => {
    row.forEach(({ role, share }, h) => {
      const strength = role && role !== "broad" && !isSink(role) ? (share ?? 0) : -1;
      if (strength > best) [best, layer, head] = [strength, block.layers[index], h];
    });
  });
  return {
    example: 0,
    block: block.name,
    layer,
    head,
    also: [],
    mean: false,
    sorted: false,
    minus: false,
    word: null,
    key: null,
    tab: null,
    wire: 0,
    color: isPair ? "difference" : trace.effects?.kind === "prediction" ? "effect" : "role",
    named: "corpus",
    role: "",
    against: "",
    edits: [],
    answers: false,
    story: 0,
    exercise: 0,
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
    also: selection.also.filter(isThere).slice(0, MAX_HEADS - 1),
    edits: selection.edits.filter((edit) => {
      const own = blockOf(trace, edit.block);
      return own.name === edit.block && own.has(own.layers.indexOf(edit.layer), edit.head);
    }),
  };
}

export function isSamePlace(a: Edit, b: Edit): boolean {
  if (a.kind !== b.kind || a.block !== b.block || !isSameHead(a, b)) return false;
  if (a.kind === "cell" && b.kind === "cell") return a.query === b.query && a.key === b.key;
  return a.kind !== "neuron" || b.kind !== "neuron" || a.neuron === b.neuron;
}

const FILTER_CHOICES: Partial<Record<keyof Filter, readonly string[]>> = {
  specials: ["shown", "dimmed", "hidden"],
  pairs: ["all", "ab", "ba", "within"],
  unit: ["tokens", "words"],
  combine: ["off", "layer", "all"],
};

const EDITS = ["off", "cell", "neuron"] as const;

/** Write the fields that differ from `base` in a fixed order, `head=L9H3&word=8`; the head is
 *  always written. */
export function formatFragment(selection: Selection, base: Selection): string {
  const parts = [`head=${headCode(selection)}`];
  type Value = string | number | boolean | null;
  const add = (name: string, value: Value, usual: Value) => {
    const text = typeof value === "boolean" ? Number(value) : (value ?? "");
    if (value !== usual) parts.push(`${name}=${encodeURIComponent(text)}`);
  };
  add("block", selection.block, base.block);
  add("word", selection.word, base.word);
  add("key", selection.key, base.key);
  add("tab", selection.tab, base.tab);
  add("wire", selection.wire, base.wire);
  add("color", selection.color, base.color);
  add("named", selection.named, base.named);
  add("role", selection.role, base.role);
  add("against", selection.against, base.against);
  add("with", selection.also.map(headCode).join(), base.also.map(headCode).join());
  add("mean", selection.mean, base.mean);
  add("sort", selection.sorted, base.sorted);
  add("minus", selection.minus, base.minus);
  const codes = (kind: Edit["kind"], { edits }: Selection) =>
    edits.filter((edit) => edit.kind === kind).map((edit) => editCode(edit, base.block));
  const isEdited = EDITS.some((kind) => `${codes(kind, selection)}` !== `${codes(kind, base)}`);
  for (const kind of EDITS) add(kind, codes(kind, selection).join(), "");
  if (isEdited && selection.edits.length === 0) add("off", "", null);
  add("filter", filterCode(selection.filter), filterCode(base.filter));
  add("example", selection.example, base.example);
  add("answers", selection.answers, base.answers);
  add("story", stepCode(selection.story), stepCode(base.story));
  add("ex", selection.exercise, base.exercise);
  add("theme", selection.theme, base.theme);
  add("pane", selection.pane, base.pane);
  add("side", selection.side, base.side);
  add("embed", selection.embed, base.embed);
  return parts.join("&").replaceAll("%2C", ",").replaceAll("%3A", ":");
}

function stepCode(step: number): string | number {
  return step < 0 ? "off" : step;
}

/** Apply a fragment to `base`; invalid fields are ignored. */
export function parseFragment(fragment: string, base: Selection): Selection {
  const fields = new URLSearchParams(fragment.replace(/^#/, "").replaceAll("+", "%2B"));
  const text = (name: string) => fields.get(name) ?? undefined;
  const number = (name: string, least = 0, most = Number.POSITIVE_INFINITY) => {
    const value = text(name) ?? "";
    return /^\d+$/.test(value) ? Math.min(most, Math.max(least, Number(value))) : undefined;
  };
  const flag = (name: string) => (fields.has(name) ? text(name) === "1" : undefined);
  const choice = <T extends string>(name: string, choices: readonly T[]) =>
    choices.find((option) => option === text(name));
  const block = text("block") || base.block;
  const edits = EDITS.filter((kind) => fields.has(kind));
  const changes = {
    ...parseHead(text("head") ?? ""),
    block,
    word: text("word") === "" ? null : number("word"),
    key: text("key") === "" ? null : number("key"),
    tab: choice("tab", TABS),
    wire: number("wire"),
    color: choice("color", COLORS),
    named: choice("named", SOURCES),
    theme: choice("theme", THEMES),
    role: text("role"),
    against: text("against"),
    example: number("example"),
    story: text("story") === "off" ? -1 : number("story"),
    pane: number("pane", 1, 4),
    side: number("side", 0, 1),
    exercise: number("ex"),
    embed: flag("embed"),
    answers: flag("answers"),
    mean: flag("mean"),
    sorted: flag("sort"),
    minus: flag("minus"),
    also: fields.has("with") ? list(text("with"), parseHead) : undefined,
    filter: fields.has("filter") ? parseFilter(text("filter")!) : undefined,
    edits: edits.length
      ? edits.flatMap((kind) => list(text(kind), (code) => parseEdit(kind, code, base.block)))
      : undefined,
  };
  const present = Object.entries(changes).filter(([, value]) => value !== undefined);
  return { ...base, ...(Object.fromEntries(present) as Partial<Selection>) };
}

export function parseHead(code: string): HeadId | null {
  const match = /^L(\d+)H(\d+)$/.exec(code);
  return match ? { layer: Number(match[1]), head: Number(match[2]) } : null;
}

function list<T>(text: string | undefined, parse: (code: string) => T | null): T[] {
  return (text ?? "").split(",").flatMap((code) => parse(code) ?? []);
}

function editCode(edit: Edit, usual: string): string {
  const name = edit.block === usual ? "" : `${edit.block}:`;
  const head = `${name}${headCode(edit)}`;
  if (edit.kind === "off") return head;
  if (edit.kind === "neuron") return `${head}.${edit.neuron}x${edit.factor}`;
  return `${head}.${edit.query}.${edit.key}.${edit.weight}`;
}

function parseEdit(kind: Edit["kind"], code: string, usual: string): Edit | null {
  const [, block, name, rest] = /^(?:(\w+):)?(L\d+H\d+)(?:\.(.+))?$/.exec(code) ?? [];
  const head = parseHead(name ?? "");
  if (!head) return null;
  const id = { ...head, block: block ?? usual };
  if (kind === "off") return { kind, ...id };
  const match =
    kind === "cell"
      ? /^(\d+)\.(\d+)\.(\d*\.?\d+)$/.exec(rest ?? "")
      : /^(\d+)x(-?\d*\.?\d+)$/.exec(rest ?? "");
  if (!match) return null;
  const [first, second, third] = match.slice(1).map(Number);
  if (kind === "neuron") return { kind, ...id, neuron: first, factor: second };
  const weight = Math.min(1, third);
  return { kind, ...id, query: first, key: second, weight };
}

function filterCode(filter: Filter): string {
  return (Object.keys(NO_FILTER) as (keyof Filter)[])
    .filter((name) => filter[name] !== NO_FILTER[name])
    .map((name) => `${name}:${filter[name]}`)
    .join(",");
}

function parseFilter(text: string): Filter {
  const changes: Record<string, string | number> = {};
  for (const part of text.split(",")) {
    const [name, value] = part.split(":") as [keyof Filter, string | undefined];
    if (!Object.hasOwn(NO_FILTER, name) || value === undefined) continue;
    const choices = FILTER_CHOICES[name];
    const number = Number(value);
    if (choices?.includes(value)) changes[name] = value;
    else if (!choices && value !== "" && number >= 0 && Number.isFinite(number))
      changes[name] = name === "above" ? Math.min(number, 1) : Math.floor(number);
  }
  return { ...NO_FILTER, ...changes };
}
