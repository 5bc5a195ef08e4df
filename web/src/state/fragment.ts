// The selection as a URL fragment, so that a link or a saved page reopens where it was.

import { type Filter, NO_FILTER } from "../data/lens.ts";
import {
  COLORS,
  type Edit,
  type HeadId,
  headCode,
  type Selection,
  SOURCES,
  TABS,
  THEMES,
} from "./selection.ts";

const FILTER_CHOICES: Partial<Record<keyof Filter, readonly string[]>> = {
  specials: ["shown", "dimmed", "hidden"],
  pairs: ["all", "ab", "ba", "within"],
  unit: ["tokens", "words"],
  combine: ["off", "layer", "all"],
};

const EDITS = ["off", "cell", "neuron"] as const;

/** What differs from `base`, in a fixed order: `head=L9H3&word=8`; the head is always named. */
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
  add("color", selection.color, base.color);
  add("named", selection.named, base.named);
  add("role", selection.role, base.role);
  add("against", selection.against, base.against);
  add("with", selection.also.map(headCode).join(), base.also.map(headCode).join());
  add("sort", selection.sorted, base.sorted);
  add("minus", selection.minus, base.minus);
  const codes = (kind: Edit["kind"], { edits }: Selection) =>
    edits.filter((edit) => edit.kind === kind).map((edit) => editCode(edit, base.block));
  const isEdited = EDITS.some((kind) => `${codes(kind, selection)}` !== `${codes(kind, base)}`);
  for (const kind of EDITS) add(kind, codes(kind, selection).join(), "");
  if (isEdited && selection.edits.length === 0) add("off", "", null);
  add("filter", filterCode(selection.filter), filterCode(base.filter));
  add("example", selection.example, base.example);
  add("story", stepCode(selection.story), stepCode(base.story));
  add("theme", selection.theme, base.theme);
  add("pane", selection.pane, base.pane);
  add("side", selection.side, base.side);
  add("embed", selection.embed, base.embed);
  return parts.join("&").replaceAll("%2C", ",").replaceAll("%3A", ":");
}

function stepCode(step: number): string | number {
  return step < 0 ? "off" : step;
}

/** `base` changed by a fragment; what cannot be understood is left as it was. */
export function parseFragment(fragment: string, base: Selection): Selection {
  const fields = new URLSearchParams(fragment.replace(/^#/, "").replaceAll("+", "%2B"));
  const text = (name: string) => fields.get(name) ?? undefined;
  const number = (name: string, least = 0, most = Number.POSITIVE_INFINITY) => {
    const value = text(name) ?? "";
    return /^\d+$/.test(value) ? Math.min(most, Math.max(least, Number(value))) : undefined;
  };
  const flag = (name: string) => (fields.has(name) ? text(name) === "1" : undefined);
  const choice = <T extends string>(name: string, choices: readonly T[]) =>
    choices.find((one) => one === text(name));
  const block = text("block") || base.block;
  const edits = EDITS.filter((kind) => fields.has(kind));
  const changes = {
    ...parseHead(text("head") ?? ""),
    block,
    word: text("word") === "" ? null : number("word"),
    key: text("key") === "" ? null : number("key"),
    tab: choice("tab", TABS),
    color: choice("color", COLORS),
    named: choice("named", SOURCES),
    theme: choice("theme", THEMES),
    role: text("role"),
    against: text("against"),
    example: number("example"),
    story: text("story") === "off" ? -1 : number("story"),
    pane: number("pane", 1, 4),
    side: number("side", 0, 1),
    embed: flag("embed"),
    sorted: flag("sort"),
    minus: flag("minus"),
    also: fields.has("with") ? list(text("with"), parseHead) : undefined,
    filter: fields.has("filter") ? parseFilter(text("filter")!) : undefined,
    edits: edits.length
      ? edits.flatMap((kind) => list(text(kind), (code) => parseEdit(kind, code, block)))
      : undefined,
  };
  const known = Object.entries(changes).filter(([, value]) => value !== undefined);
  return { ...base, ...(Object.fromEntries(known) as Partial<Selection>) };
}

export function parseHead(code: string): HeadId | null {
  const found = /^L(\d+)H(\d+)$/.exec(code);
  return found ? { layer: Number(found[1]), head: Number(found[2]) } : null;
}

function list<T>(text: string | undefined, parse: (code: string) => T | null): T[] {
  return (text ?? "").split(",").flatMap((code) => parse(code) ?? []);
}

function editCode(edit: Edit, usual: string): string {
  const head = headCode(edit);
  if (edit.kind === "off") return head;
  if (edit.kind === "neuron") return `${head}.${edit.neuron}x${edit.factor}`;
  const name = edit.block === usual ? "" : `${edit.block}:`;
  return `${name}${head}.${edit.query}.${edit.key}.${edit.weight}`;
}

function parseEdit(kind: Edit["kind"], code: string, usual: string): Edit | null {
  const [, block, name, rest] = /^(?:(\w+):)?(L\d+H\d+)(?:\.(.+))?$/.exec(code) ?? [];
  const id = parseHead(name ?? "");
  if (!id) return null;
  if (kind === "off") return { kind, ...id };
  const found =
    kind === "cell"
      ? /^(\d+)\.(\d+)\.(\d*\.?\d+)$/.exec(rest ?? "")
      : /^(\d+)x(-?\d*\.?\d+)$/.exec(rest ?? "");
  if (!found) return null;
  const [first, second, third] = found.slice(1).map(Number);
  if (kind === "neuron") return { kind, ...id, neuron: first, factor: second };
  const weight = Math.min(1, third);
  return { kind, block: block ?? usual, ...id, query: first, key: second, weight };
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
