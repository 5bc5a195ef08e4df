// Tokens as text: rows and columns of a view, and the spelling of tokens.

import type { Tokens } from "./trace.ts";

/** Row or column of a view: a token, or a word with all its tokens. */
export interface Entry {
  readonly label: string;
  readonly positions: readonly number[];
  readonly special: boolean;
  readonly segment: number;
  readonly generated: boolean;
  /** Kind of a token that is a part of an image or a recording. */
  readonly kind?: Unit | undefined;
}

export type Unit = "patch" | "frame";

/** What all tokens but special ones are, if they are no words. */
export function unitOf({ pieces, special }: Tokens): Unit | null {
  const areAll = pieces.every((piece, i) => piece !== null || special[i]);
  return (areAll && pieces.find(Boolean)?.kind) || null;
}

/** Entry in a sentence: `patch 1,0`, `frame 0.44 s`, or its text. */
export function named({ kind, label }: Pick<Entry, "kind" | "label">): string {
  return kind ? `${kind} ${printed(label)}` : printed(label);
}

export function entriesOf(tokens: Tokens, unit: "tokens" | "words"): Entry[] {
  const groups = unit === "words" ? tokens.groups : tokens.texts.map((_, position) => [position]);
  return groups.map((positions, index) => ({
    label: unit === "words" ? tokens.wordTexts[index] : tokens.texts[positions[0]],
    positions,
    special: tokens.special[positions[0]],
    segment: tokens.segments[positions[0]],
    generated: positions.some((position) => tokens.generated[position]),
    kind: tokens.pieces[positions[0]]?.kind,
  }));
}

/** Index of the entry with a token position, or -1. */
export function rowOf(entries: readonly Entry[], position: number | null | undefined): number {
  return entries.findIndex((entry) => entry.positions.includes(position ?? -1));
}

const SIGNS: Record<string, string> = { "\n": "⏎", "\r": "␍", "\t": "⇥" };

/** Make a token printable: no invisible characters, no line breaks. */
export function printed(label: string): string {
  if (label === "") return "∅";
  const shown = label.replace(/[\n\r\t]/g, (sign) => SIGNS[sign]);
  const trimmed = shown.replace(/^ +/, "");
  return trimmed === "" ? "␣".repeat(shown.length) : trimmed;
}

const BYTES = /^( ?)((?:<0x[0-9A-F]{2}>)+)$/;
const PARTS = "₀₁₂₃₄";

/** Spell tokens that hold bytes of a character: `<0xE5>`, `<0x8C>`, `<0xBB>` become 医₁, 医₂, 医₃.
 *  Bytes that form no character stay. */
export function spelled(texts: readonly string[]): string[] {
  const written = [...texts];
  let run: number[] = [];
  texts.forEach((text, i) => {
    const match = BYTES.exec(text);
    if (match?.[1] === " ") run = spell(written, run);
    if (match) run.push(i);
    else run = spell(written, run);
  });
  spell(written, run);
  return written;
}

/** Spell a run of byte tokens; returns the next run, which is empty. */
function spell(written: string[], run: readonly number[]): number[] {
  const owners: number[] = [];
  const bytes: number[] = [];
  for (const i of run) {
    for (const [, byte] of written[i].matchAll(/<0x(..)>/g)) {
      owners.push(i);
      bytes.push(Number.parseInt(byte, 16));
    }
  }
  let whole = "";
  try {
    whole = new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(bytes));
  } catch {
    return [];
  }
  const names = new Map(run.map((i) => [i, written[i].startsWith(" ") ? " " : ""]));
  let start = 0;
  for (const character of whole) {
    const end = start + new TextEncoder().encode(character).length;
    const sharers = [...new Set(owners.slice(start, end))];
    sharers.forEach((i, part) => {
      names.set(i, `${names.get(i)}${character}${sharers.length > 1 ? PARTS[part + 1] : ""}`);
    });
    start = end;
  }
  for (const [i, name] of names) written[i] = name;
  return [];
}

/** Token inside running text: without `##`, and each character once. */
export function inText(text: string): string {
  return text
    .replace(/^##(?=.)/, "")
    .replace(/₁$/, "")
    .replace(/^.([₂-₄])$/u, "$1");
}

const LEANS_BACK = /^[\p{Pe}\p{Pf}.,;:!?%…]+$/u;
const NO_SPACES = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/u;

/** Whether each token follows without a space. If some tokens begin with a space, the others
 *  have none; else words, where known, and punctuation decide. */
export function joinedTokens(texts: readonly string[], words?: readonly number[]): boolean[] {
  const hasSpaces = texts.some((text) => /^\s/.test(text));
  return texts.map((text, i) => {
    if (i === 0 || /^\s/.test(text)) return false;
    if (hasSpaces || text.startsWith("##")) return true;
    const isSameWord = words !== undefined && words[i] >= 0 && words[i] === words[i - 1];
    return isSameWord || LEANS_BACK.test(text) || NO_SPACES.test(text);
  });
}
