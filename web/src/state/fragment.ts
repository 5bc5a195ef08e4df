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

/** What differs from `base`, in a fixed order: `head=L9H3&word=8`; the head is always named. */
export function formatFragment(selection: Selection, base: Selection): string {
  const parts = [`head=${headCode(selection)}`];
  const { edits, filter } = selection;
  const add = (name: string, value: string | number | null, usual: string | number | null) => {
    if (value !== usual && value !== null) parts.push(`${name}=${encodeURIComponent(value)}`);
  };
  add("block", selection.block, base.block);
  add("word", selection.word ?? "", base.word ?? "");
  add("key", selection.key, null);
  add("tab", selection.tab, null);
  add("color", selection.color, "role");
  add("named", selection.named, base.named);
  add("role", selection.role, "");
  add("with", selection.also.map(headCode).join(), "");
  add("sort", Number(selection.sorted), 0);
  add("minus", Number(selection.minus), 0);
  add("off", edits.flatMap((e) => (e.kind === "off" ? headCode(e) : [])).join(","), "");
  add("cell", edits.flatMap((e) => (e.kind === "cell" ? cellCode(e, base.block) : [])).join(), "");
  add("neuron", edits.flatMap((e) => (e.kind === "neuron" ? neuronCode(e) : [])).join(), "");
  add("filter", filterCode(filter), "");
  add("example", selection.example, 0);
  add("story", selection.story < 0 ? "off" : selection.story, 0);
  add("theme", selection.theme, "auto");
  add("pane", selection.pane, 2);
  add("side", selection.side, 0);
  if (selection.embed) parts.push("embed=1");
  return parts.join("&").replaceAll("%2C", ",").replaceAll("%3A", ":");
}

type Parsed = Partial<{ -readonly [K in keyof Selection]: Selection[K] }>;

/** `base` changed by a fragment; what cannot be understood is left as it was. */
export function parseFragment(fragment: string, base: Selection): Selection {
  const fields = new URLSearchParams(fragment.replace(/^#/, "").replaceAll("+", "%2B"));
  const changes: Parsed = {};
  const text = (name: string) => fields.get(name);
  const number = (name: string, use: (value: number) => void) => {
    const value = fields.get(name);
    if (value !== null && /^\d+$/.test(value)) use(Number(value));
  };
  const choice = <T extends string>(
    name: string,
    choices: readonly T[],
    use: (value: T) => void,
  ) => {
    const value = fields.get(name) as T | null;
    if (value !== null && choices.includes(value)) use(value);
  };
  const head = parseHead(text("head") ?? "");
  if (head) Object.assign(changes, head);
  if (text("block")) changes.block = text("block")!;
  if (text("word") === "") changes.word = null;
  number("word", (value) => {
    changes.word = value;
  });
  number("key", (value) => {
    changes.key = value;
  });
  choice("tab", TABS, (value) => {
    changes.tab = value;
  });
  choice("color", COLORS, (value) => {
    changes.color = value;
  });
  choice("named", SOURCES, (value) => {
    changes.named = value;
  });
  choice("theme", THEMES, (value) => {
    changes.theme = value;
  });
  if (fields.has("role")) changes.role = text("role")!;
  number("example", (value) => {
    changes.example = value;
  });
  number("story", (value) => {
    changes.story = value;
  });
  if (text("story") === "off") changes.story = -1;
  number("pane", (value) => {
    changes.pane = Math.min(4, Math.max(1, value));
  });
  number("side", (value) => {
    changes.side = Math.min(1, value);
  });
  if (fields.has("embed")) changes.embed = text("embed") === "1";
  if (fields.has("sort")) changes.sorted = text("sort") === "1";
  if (fields.has("minus")) changes.minus = text("minus") === "1";
  if (fields.has("with")) changes.also = list(text("with"), parseHead);
  if (fields.has("filter")) changes.filter = parseFilter(text("filter")!);
  const block = changes.block ?? base.block;
  const edits = [
    ...list(text("off"), (code) => parseEdit("off", code, block)),
    ...list(text("cell"), (code) => parseEdit("cell", code, block)),
    ...list(text("neuron"), (code) => parseEdit("neuron", code, block)),
  ];
  if (["off", "cell", "neuron"].some((name) => fields.has(name))) changes.edits = edits;
  return { ...base, ...changes };
}

export function parseHead(code: string): HeadId | null {
  const found = /^L(\d+)H(\d+)$/.exec(code);
  return found ? { layer: Number(found[1]), head: Number(found[2]) } : null;
}

function list<T>(text: string | null, parse: (code: string) => T | null): T[] {
  return (text ?? "").split(",").flatMap((code) => parse(code) ?? []);
}

function cellCode(edit: Extract<Edit, { kind: "cell" }>, usual: string): string {
  const { block, query, key, weight } = edit;
  const name = block === usual ? "" : `${block}:`;
  return `${name}${headCode(edit)}.${query}.${key}.${weight}`;
}

function neuronCode(edit: Extract<Edit, { kind: "neuron" }>): string {
  return `${headCode(edit)}.${edit.neuron}x${edit.factor}`;
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
    else if (!choices && value !== "" && number >= 0)
      changes[name] = name === "above" ? Math.min(number, 1) : Math.floor(number);
  }
  return { ...NO_FILTER, ...changes };
}
