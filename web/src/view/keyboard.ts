// Keyboard shortcuts. Text fields and lists keep their keys.

import { indexOfHead } from "../data/effects.ts";
import type { Filter } from "../data/filtered_block.ts";
import { rowOf } from "../data/tokens.ts";
import { COLORS, type ColorBy, isSameHead, THEMES } from "../state/selection.ts";
import type { Session } from "../state/session.ts";
import { consume } from "./controls.tsx";
import type { ExplorerContext } from "./explorer_context.ts";
import { headOrder, shareOf, shownColor } from "./head_values.ts";
import { goTo } from "./story.tsx";

export const KEYS: readonly (readonly [keys: string, meaning: string])[] = [
  ["← → ↑ ↓", "other heads and layers"],
  [", .", "pin the word before, the word after"],
  ["1 2 3 4 5", "lines, matrix, neurons, evidence, effect"],
  ["C", "color heads by role, effect, difference, spread, distance"],
  ["F, /", "filter; find a word or a head"],
  ["M, Shift click", "draw another head over this one, up to six"],
  ["W", "tokens or words"],
  ["S", "special tokens shown, dimmed, hidden"],
  ["[ ]", "lower, raise the smallest weight drawn"],
  ["O", "switch the head off or on"],
  ["Ctrl Z", "undo the last edit"],
  ["Space", "next step of the tour"],
  ["Tab, arrows, Enter", "into words, heads and the matrix; Enter pins"],
  ["+ − 0", "in the matrix: magnify, show more, fit"],
  ["Escape", "close; unpin; clear the filter"],
  ["T, ?", "light or dark; help"],
];

export function handleKey(event: KeyboardEvent, explorer: ExplorerContext): void {
  const { session } = explorer;
  const target = event.composedPath()[0] as HTMLElement;
  if (target.matches?.("input:not([type=range]), select, textarea")) return;
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z") {
    const { edits } = session.selection.peek();
    if (edits.length > 0) {
      session.update({ edits: edits.slice(0, -1) });
      event.preventDefault();
    }
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isButton = target.matches?.("button") && (event.key === "Enter" || event.key === " ");
  const isRange = target.matches?.("input[type=range]") && event.key.startsWith("Arrow");
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const action = isButton || isRange ? undefined : actions(explorer)[key];
  if (!action) return;
  action();
  consume(event);
}

function actions(explorer: ExplorerContext): Record<string, () => void> {
  const { session } = explorer;
  const selection = session.selection.peek();
  const { filter, story } = selection;
  const set = (changes: Partial<Filter>) => session.update({ filter: { ...filter, ...changes } });
  const above = (step: number) =>
    set({ above: Math.round(Math.min(0.5, Math.max(0, filter.above + step)) * 100) / 100 });
  const bindings: Record<string, () => void> = {
    ArrowLeft: () => stepHead(explorer, -1),
    ArrowRight: () => stepHead(explorer, 1),
    ArrowUp: () => stepLayer(explorer, -1),
    ArrowDown: () => stepLayer(explorer, 1),
    ",": () => stepWord(session, -1),
    ".": () => stepWord(session, 1),
    Escape: () => clearStep(explorer),
    "?": () => explorer.toggle("help"),
    f: () => explorer.toggle("filter"),
    "/": () => explorer.toggle("find"),
    m: () => {
      explorer.adding.value = !explorer.adding.peek();
    },
    w: () => set({ unit: filter.unit === "tokens" ? "words" : "tokens" }),
    s: () => set({ specials: after(["shown", "dimmed", "hidden"], filter.specials) }),
    c: () => session.update({ color: after(colorsOf(session), shownColor(session)) }),
    t: () => nextTheme(session),
    "[": () => above(-0.05),
    "]": () => above(0.05),
    o: () => toggleHead(session),
  };
  session.tabs.peek().forEach((tab, i) => {
    bindings[String(i + 1)] = () => session.update({ tab });
  });
  if (story >= 0) bindings[" "] = () => goTo(session, story + 1);
  return bindings;
}

export function nextTheme(session: Session): void {
  session.update({ theme: after(THEMES, session.selection.peek().theme) });
}

function after<T>(list: readonly T[], now: T): T {
  return list[(list.indexOf(now) + 1) % list.length];
}

/** Values that can color the heads of this page. */
function colorsOf(session: Session): readonly ColorBy[] {
  return COLORS.filter((name) => name !== "difference" || session.compared !== null);
}

function toggleHead(session: Session): void {
  const { layer, head } = session.selection.peek();
  if (!session.canSwitch(session.lead.peek())) return;
  session.edits.toggleOff({ layer, head }, session.can.off);
}

/** Move by `step` places among sorted heads. */
function stepPlace({ session }: ExplorerContext, step: number): void {
  const side = session.lead.peek();
  const { block } = side;
  const { head } = session.selection.peek();
  const index = session.layerIndex(block);
  const spots = headOrder(session, side, shareOf(session, side));
  const present = spots.filter((spot) => block.has(spot.layerIndex, spot.head));
  const current = indexOfHead(present, index, head);
  const next = present[Math.min(present.length - 1, Math.max(0, current + step))];
  session.update({ layer: block.layers[next.layerIndex], head: next.head });
}

/** After “+ head”, the head that the keys leave stays drawn under the next one. */
function keepAdded({ session, adding }: ExplorerContext): void {
  const { layer, head, also } = session.selection.peek();
  const others = also.filter((id) => !isSameHead(id, { layer, head }));
  if (adding.peek() && !session.exercise.isHidden.peek())
    session.update({ also: [...others, { layer, head }] });
  adding.value = false;
}

function stepHead(explorer: ExplorerContext, step: number): void {
  const { session } = explorer;
  keepAdded(explorer);
  const { head, sorted } = session.selection.peek();
  const { block } = session.lead.peek();
  if (sorted) stepPlace(explorer, step);
  else {
    const index = session.layerIndex(block);
    let next = head;
    do next = (next + step + block.heads) % block.heads;
    while (!block.has(index, next) && next !== head);
    session.update({ head: next });
  }
  keepFocus(explorer);
}

function stepLayer(explorer: ExplorerContext, step: number): void {
  const { session } = explorer;
  keepAdded(explorer);
  const { block } = session.lead.peek();
  if (session.selection.peek().sorted) stepPlace(explorer, step * gridColumns(explorer));
  else {
    const index = Math.min(block.layers.length - 1, Math.max(0, session.layerIndex(block) + step));
    session.update({ layer: block.layers[index] });
  }
  keepFocus(explorer);
}

/** Heads in a row of the grid on the page. */
function gridColumns({ root }: ExplorerContext): number {
  return Number(root.querySelector("[role=grid]")?.getAttribute("aria-colcount")) || 1;
}

/** Keep the focus on the chosen cell if the grid has it. */
function keepFocus(explorer: ExplorerContext): void {
  const root = explorer.root.getRootNode() as ShadowRoot;
  if (root.activeElement?.matches("[role=gridcell]")) {
    requestAnimationFrame(() => explorer.root.querySelector<HTMLElement>(".cell.sel")?.focus());
  }
}

function stepWord(session: Session, step: number): void {
  const { rows } = session.sides.peek()[0].filtered;
  const current = rowOf(rows, session.selection.peek().word);
  const next =
    current < 0 ? (step > 0 ? 0 : rows.length - 1) : (current + step + rows.length) % rows.length;
  session.update({ word: rows[next]?.positions[0] ?? null });
}

function clearStep(explorer: ExplorerContext): void {
  const { session } = explorer;
  const { word, key, role, story, also, answers } = session.selection.peek();
  explorer.clearHover();
  if (explorer.open.peek()) explorer.close();
  else if (story > 0) goTo(session, session.store.story.length + 1);
  else if (session.exercise.asked.peek()) session.exercise.open(0);
  else if (explorer.adding.peek()) explorer.adding.value = false;
  else if (answers) session.update({ answers: false });
  else if (also.length > 0) session.update({ also: [] });
  else if (key !== null) session.update({ key: null });
  else if (word !== null) session.update({ word: null });
  else if (role) session.update({ role: "" });
  else session.update({ filter: session.store.base.filter });
}
