// The payload as Python writes it (src/headscope/page/payload.py), and its check on arrival.

import type { ImagePart, PiecePart, SoundPart } from "./media.ts";

export const FORMAT = "headscope-explorer";
export const VERSION = 1;

/** Real numbers as 16-bit integers, one step (scale) per index of the first `axes`. */
export interface NumbersPart {
  shape: number[];
  axes: number;
  data: number;
  steps: number;
}

export interface TokensPart {
  tokens: string[];
  special: number[];
  segments: number[];
  generated: number[];
  words: number[];
  word_texts: string[];
  /** What tokens are that are no text; missing where all of it is text. */
  pieces?: PiecePart[];
}

export interface VectorsPart {
  layers: number[];
  groups: number[];
  /** The factor on q·k; null where it is not a plain factor (several products). */
  scales: (number | null)[];
  queries: NumbersPart;
  keys: NumbersPart;
  values: NumbersPart | null;
  outputs: NumbersPart | null;
  scores: NumbersPart | null;
}

export interface BlockPart {
  name: string;
  queries: string;
  keys: string;
  causal: boolean;
  layers: number[];
  heads: number;
  present: number[][];
  shape: number[];
  coarse: number;
  fine: number | null;
  statistics: Record<string, (number | null)[][]>;
  vectors: VectorsPart | null;
}

export interface HiddenPart extends NumbersPart {
  states: number[];
}

export interface TracePart {
  title: string;
  model: string;
  stacks: Record<string, TokensPart>;
  blocks: BlockPart[];
  hidden: Record<string, HiddenPart>;
  images?: ImagePart[];
  sound?: SoundPart;
}

export interface Header {
  format: string;
  version: number;
  selection: string;
  traces: TracePart[];
}

/** What the payload is not; its message is shown to the reader of the page. */
export class PayloadError extends Error {}

/** The header in `text`, or an error that says what is wrong with it. */
export function parseHeader(text: string): Header {
  return checkHeader(parseJson(text));
}

export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new PayloadError("The data of this page is cut off or damaged (it is not JSON).");
  }
}

/** `value` as a header, after a look at every field that the views rely on. */
export function checkHeader(value: unknown): Header {
  const header = value as Header;
  need(isObject(value) && header.format === FORMAT, "it is not an explorer payload");
  need(header.version === VERSION, `its version is ${header.version}, expected ${VERSION}`);
  need(Array.isArray(header.traces) && header.traces.length > 0, "it has no trace");
  for (const trace of header.traces) {
    need(isObject(trace.stacks) && Array.isArray(trace.blocks), "a trace has no tokens or blocks");
    need(trace.blocks.length > 0, "a trace has no attention");
    for (const tokens of Object.values(trace.stacks)) {
      const n = tokens.tokens?.length;
      for (const name of ["special", "segments", "generated", "words"] as const) {
        need(tokens[name]?.length === n, `tokens and ${name} differ in length`);
      }
      need((tokens.pieces?.length ?? n) === n, "tokens and pieces differ in length");
    }
    for (const block of trace.blocks) checkBlock(block, trace);
  }
  return header;
}

function checkBlock(block: BlockPart, trace: TracePart): void {
  const [layers, heads, queries, keys] = block.shape ?? [];
  const where = `block ${block.name}`;
  need(block.layers?.length === layers, `${where}: layers and shape differ`);
  need(block.heads === heads, `${where}: heads and shape differ`);
  need(
    trace.stacks[block.queries]?.tokens.length === queries,
    `${where}: queries and tokens differ`,
  );
  need(trace.stacks[block.keys]?.tokens.length === keys, `${where}: keys and tokens differ`);
}

/** Refuse the payload, with the reason, unless `condition` holds. */
export function need(condition: boolean, problem: string): void {
  if (!condition) throw new PayloadError(`The data of this page cannot be read: ${problem}.`);
}

export function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
