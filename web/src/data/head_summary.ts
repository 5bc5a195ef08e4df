// Summary of a head on one text: a title written by rules from numbers.

import type { RoleId } from "../../generated/payload.ts";
import type { Matrix } from "./filtered_block.ts";
import { percent } from "./format.ts";
import type { Entry } from "./tokens.ts";

export type Link = Readonly<{
  from: Entry;
  to: Entry;
  weight: number;
  /** Letter of the text, where two are compared. */
  letter?: string;
  /** Token before `to`. */
  before?: Entry | undefined;
}>;

export interface TitleParts {
  readonly lead: string;
  readonly words: readonly string[];
  readonly links: readonly Link[];
}

/** Strongest link of a row, or of the whole text. Links to the first token, to special tokens,
 *  and to the token itself are skipped unless the role is about them. */
export function strongestLink(
  matrix: Matrix,
  rows: readonly Entry[],
  columns: readonly Entry[],
  row: number,
  role: RoleId | null,
): Link | null {
  let best: Link | null = null;
  const candidates = row >= 0 ? [row] : rows.keys();
  for (const r of candidates) {
    if (row < 0 && rows[r].special) continue;
    columns.forEach((to, c) => {
      const weight = matrix.weights[r * matrix.columns + c];
      const isItself = to.positions[0] === rows[r].positions[0] && role !== "current_token";
      if (to.special || isItself || (to.positions[0] === 0 && columns.length > 2)) return;
      if (weight > (best?.weight ?? 0))
        best = { from: rows[r], to, weight, before: columns[c - 1] };
    });
  }
  return best;
}

const LEADS: Record<RoleId, string> = {
  previous_token: "reads the token before",
  next_token: "reads the token after",
  current_token: "reads each token itself",
  duplicate_token: "links duplicate words",
  induction: "reads what followed the same word earlier",
  broad: "broad attention",
  first_token: "attention sink: first token",
  special_token: "attention sink: special tokens",
  punctuation: "attention sink: punctuation",
};

export function isSink(
  role: string | null,
): role is "first_token" | "special_token" | "punctuation" {
  return role === "first_token" || role === "special_token" || role === "punctuation";
}

/** Minimum weight that the title of a sink head names. */
const MIN_NAMED = 0.05;

/** Minimum weight of a pinned word for a sink head to be titled by what the word reads. */
const MIN_PINNED = 0.25;

/** Build the title of a head from its role and its strongest links, one per input. */
export function titleOf(
  role: RoleId | null,
  share: number | null,
  candidates: readonly (Link | null)[],
  isPinned: boolean,
): TitleParts {
  const present = candidates.filter((link) => link !== null);
  const isSinkRole = isSink(role);
  const isStrong = isPinned && present.some(({ weight }) => weight >= MIN_PINNED);
  const parts = (lead: string, links: readonly Link[] = present) => ({ lead, words: [], links });
  if (isSinkRole && !isStrong) {
    const lead = `${LEADS[role]}, ${percent(share)} on average`;
    const shown = isPinned ? present.filter(({ weight }) => weight >= MIN_NAMED) : [];
    return parts(shown.length ? `${lead};` : lead, shown);
  }
  if (role === "broad") return parts(`${LEADS.broad}${present.length ? ", most of all" : ""}`);
  if (role !== null && !isSinkRole) {
    const across =
      role === "duplicate_token" && present.some(({ from, to }) => from.segment !== to.segment);
    const lead = across ? "links duplicate words across the two sentences" : LEADS[role];
    return parts(present.length ? `${lead}:` : lead);
  }
  if (present.length === 0) return parts("reads hardly any word here");
  return parts(isPinned ? localLead(present[0]) : "no single role; strongest:");
}

/** What a word does with a head, whatever the head's role over all words. */
function localLead({ from, to, before }: Link): string {
  const same = (a: Entry, b: Entry) => a.label.trim() === b.label.trim() && /\w/.test(a.label);
  const isBefore = to.positions[0] < from.positions[0];
  if (isBefore && before && same(before, from)) return "reads what followed the same word earlier:";
  if (same(from, to)) return "reads the same word elsewhere:";
  if (to.positions[0] === from.positions[0] - 1) return "reads the token before:";
  return "";
}

/** Largest weight of a row below which drawings are scaled up. */
const FAINT = 0.12;

/** Factor by which the weights of a row are drawn larger, rounded; 1 unless all are small. */
export function scaleOf(weights: ArrayLike<number>): number {
  let most = 0;
  for (let i = 0; i < weights.length; i++) {
    if (weights[i] > most) most = weights[i];
  }
  if (most >= FAINT || most <= 0) return 1;
  return Number((0.5 / most).toPrecision(1));
}

/** Largest weights of a row, and the sum of the rest. */
export function summary(
  weights: ArrayLike<number>,
  most: number,
  above: number,
): { top: { index: number; weight: number }[]; others: number; rest: number } {
  const all = Array.from(weights, (weight, index) => ({ index, weight }))
    .filter(({ weight }) => weight > 0)
    .sort((a, b) => b.weight - a.weight);
  const top = all.filter(({ weight }) => weight >= above).slice(0, most);
  const rest = all.slice(top.length);
  return { top, others: rest.length, rest: rest.reduce((sum, { weight }) => sum + weight, 0) };
}
