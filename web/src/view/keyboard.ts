// Keys for everything. Text fields and lists keep their own keys.

import { blockOf, layerIndex, type Selection, THEMES, VIEWS } from "../state/selection.ts";
import { CLEARED } from "./filters.ts";
import type { Scope } from "./scope.ts";

export const KEYS: readonly (readonly [keys: string, meaning: string])[] = [
  ["← →", "previous, next head (with Shift: add it)"],
  ["↑ ↓", "previous, next layer"],
  ["A", "all heads of the layer, or one"],
  ["1 2 3 4", "all views, model, head, neurons"],
  ["M", "lines or matrix"],
  ["W", "tokens or words"],
  ["S", "show or hide special tokens"],
  ["[ ]", "lower, raise the threshold"],
  ["N", "order neurons by number or contribution"],
  ["/", "find a token"],
  ["Tab", "into tokens, matrix and neurons: arrows move, Enter pins"],
  ["Escape", "unpin; again: clear the filters"],
  ["T", "light, dark, auto"],
];

export interface KeyActions {
  search(): void;
  help(): void;
  selectAll(): void;
}

export function handleKey(event: KeyboardEvent, scope: Scope, actions: KeyActions): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const target = event.composedPath()[0] as HTMLElement;
  if (target.matches?.("input:not([type=checkbox]), select, textarea")) return;
  const { store } = scope;
  const { selection } = store;
  const simple: Record<string, () => void> = {
    ArrowLeft: () => stepHead(scope, -1, event.shiftKey),
    ArrowRight: () => stepHead(scope, 1, event.shiftKey),
    ArrowUp: () => stepLayer(scope, -1),
    ArrowDown: () => stepLayer(scope, 1),
    Escape: () => clearStep(scope),
    Enter: () => selection.view === "model" && store.update({ view: "head" }),
    "/": actions.search,
    "?": actions.help,
    a: actions.selectAll,
    m: () => store.update({ form: selection.form === "lines" ? "matrix" : "lines" }),
    w: () => store.update({ unit: selection.unit === "token" ? "word" : "token" }),
    s: () => store.update({ specials: !selection.specials }),
    n: () => store.update({ order: selection.order === "number" ? "contribution" : "number" }),
    t: () => store.update({ theme: after(THEMES, selection.theme) }),
    "[": () => store.update({ threshold: bounded(selection.threshold - 0.05) }),
    "]": () => store.update({ threshold: bounded(selection.threshold + 0.05) }),
  };
  for (const [i, view] of VIEWS.entries()) simple[String(i + 1)] = () => store.update({ view });
  const isButton = target.matches?.("button") && (event.key === "Enter" || event.key === " ");
  const action = isButton
    ? undefined
    : simple[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action) return;
  action();
  event.preventDefault();
  event.stopPropagation();
}

function bounded(threshold: number): number {
  return Math.round(Math.min(0.5, Math.max(0, threshold)) * 100) / 100;
}

export function after<T>(list: readonly T[], now: T): T {
  return list[(list.indexOf(now) + 1) % list.length];
}

function stepHead(scope: Scope, step: number, adds: boolean): void {
  const { store } = scope;
  const { heads } = store.selection;
  const block = blockOf(scope.traces[scope.leading], store.selection);
  const index = layerIndex(block, store.selection);
  const from = step > 0 ? heads[heads.length - 1] : heads[0];
  let head = from;
  do head = (head + step + block.heads) % block.heads;
  while (!block.has(index, head) && head !== from);
  const next = adds ? [...new Set([...heads, head])].sort((a, b) => a - b) : [head];
  store.update({ heads: next });
}

function stepLayer(scope: Scope, step: number): void {
  const { store } = scope;
  const block = blockOf(scope.traces[scope.leading], store.selection);
  const index = layerIndex(block, store.selection) + step;
  const layer = block.layers[Math.min(Math.max(index, 0), block.layers.length - 1)];
  store.update({ layer });
}

function clearStep(scope: Scope): void {
  const { queries, keys } = scope.store.selection;
  const isPinned = queries.length + keys.length > 0;
  const changes: Partial<Selection> = isPinned ? { queries: [], keys: [] } : CLEARED;
  scope.store.point({});
  scope.tooltip.hide();
  scope.store.update(changes);
}
