// The visible positions of one token column: tokens or words, with or without special tokens.

import type { Tokens } from "./trace.ts";

/** One row of a column: a token, or a word with all of its tokens. */
export interface Entry {
  readonly label: string;
  /** Token positions; more than one for a word of several tokens. */
  readonly positions: readonly number[];
  readonly special: boolean;
  readonly segment: number;
  readonly generated: boolean;
}

export function entriesOf(tokens: Tokens, unit: "tokens" | "words"): Entry[] {
  const groups = unit === "words" ? tokens.groups : tokens.texts.map((_, position) => [position]);
  return groups.map((positions, index) => ({
    label: unit === "words" ? tokens.wordTexts[index] : tokens.texts[positions[0]],
    positions,
    special: tokens.special[positions[0]],
    segment: tokens.segments[positions[0]],
    generated: positions.some((position) => tokens.generated[position]),
  }));
}

/** Where in `entries` a token position is shown; -1 for none. */
export function rowOf(entries: readonly Entry[], position: number | null | undefined): number {
  return entries.findIndex((entry) => entry.positions.includes(position ?? -1));
}

const SIGNS: Record<string, string> = { "\n": "⏎", "\r": "␍", "\t": "⇥" };

/** A token as it is printed: nothing invisible, nothing that breaks a line. */
export function printed(label: string): string {
  if (label === "") return "∅";
  const shown = label.replace(/[\n\r\t]/g, (sign) => SIGNS[sign]);
  const trimmed = shown.replace(/^ +/, "");
  return trimmed === "" ? "␣".repeat(shown.length) : trimmed;
}
