// The payload as Python writes it (src/headscope/page/payload.py), and its check on arrival.

import type { ImagePart, PiecePart, SoundPart } from "./media.ts";

export const FORMAT = "headscope-explorer";
export const VERSION = 2;

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

/** The vectors of one layer. */
export interface VectorsPart {
  layer: number;
  /** The factor on q·k; null where it is not a plain factor (several products). */
  scale: number | null;
  /** The key group of each head. */
  groups: number[];
  queries: NumbersPart;
  keys: NumbersPart;
  values?: NumbersPart | null;
  outputs?: NumbersPart | null;
  scores?: NumbersPart | null;
}

export type RoleId =
  | "previous"
  | "next"
  | "same"
  | "equal"
  | "after"
  | "broad"
  | "first"
  | "special"
  | "punctuation";

export interface Role {
  role: RoleId | null;
  /** The share of attention that shows it, over the queries that could. */
  share: number | null;
  queries: number;
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
  /** A buffer per layer. */
  coarse: number[];
  fine: number[] | null;
  thumb: number;
  thumb_shape: number[];
  groups: number[][] | null;
  /** Over a corpus where there is one, with those in this text beside them. */
  roles: { source: "text" | "corpus"; heads: Role[][]; here?: Role[][] };
  statistics: Record<string, (number | null)[][]>;
  vectors: VectorsPart[];
}

export interface Answer {
  text: string;
  probability: number;
}

export interface PredictionsPart {
  kind: "next" | "mask" | "label";
  /** A null position is the whole text. */
  positions: { position: number | null; top: Answer[] }[];
}

export type EffectsPart =
  | {
      kind: "prediction";
      position: number | null;
      replace: string;
      candidates: string[];
      /** Log-probabilities with all heads. */
      before: number[];
      after: NumbersPart;
    }
  | {
      kind: "turn";
      pooling: string;
      turn: (number | null)[][];
      likeness: { before: number; after: (number | null)[][] } | null;
    };

export interface TracePart {
  title: string;
  model: string;
  /** What was changed in the model, in words. */
  changed: string | null;
  predictions: PredictionsPart | null;
  effects: EffectsPart | null;
  stacks: Record<string, TokensPart>;
  blocks: BlockPart[];
  hidden: Record<string, NumbersPart & { states: number[] }>;
  images?: ImagePart[];
  sound?: SoundPart;
}

export interface Relation {
  name: string;
  value: number;
  low: number | null;
  high: number | null;
  baseline: number | null;
  baseline_name: string | null;
}

export interface Measured {
  name: string;
  title: string;
  value: number;
  low: number | null;
  high: number | null;
  unit: string;
}

export interface Card {
  sentences: string[];
  relations: Relation[];
  /** Where it looks, in shares. */
  looks: Measured[];
  /** What else was measured. */
  numbers: Measured[];
  exemplars: { tokens: string[]; links: [query: number, key: number, weight: number][] }[];
  neighbors: string[];
}

export interface Evidence {
  about: string;
  /** What the numbers of the cards mean, by their name. */
  meanings: Record<string, string>;
  cards: Record<string, Card>;
}

export type Place = "file" | "notebook" | "lab";

export interface Header {
  format: string;
  version: number;
  place: Place;
  selection: string;
  story: { caption: string; selection: string }[];
  examples: { title: string; traces: number[] }[];
  command: string;
  evidence: Evidence | null;
  /** The address of a report on the model. */
  report?: string;
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
  need(Array.isArray(header.examples) && header.examples.length > 0, "it has no example");
  for (const { traces } of header.examples) {
    const known = traces?.every((index) => header.traces[index] !== undefined);
    need(known && (traces.length === 1 || traces.length === 2), "an example names no trace");
  }
  for (const trace of header.traces) checkTrace(trace);
  return header;
}

export function checkTrace(trace: TracePart): void {
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

function checkBlock(block: BlockPart, trace: TracePart): void {
  const [layers, heads, queries, keys] = block.shape ?? [];
  const where = `block ${block.name}`;
  const isTable = (rows: unknown[][]) =>
    rows?.length === layers && rows.every((row) => row.length === heads);
  need(block.layers?.length === layers, `${where}: layers and shape differ`);
  need(block.heads === heads, `${where}: heads and shape differ`);
  need(block.coarse?.length === layers, `${where}: buffers and layers differ`);
  const { heads: named, here } = block.roles ?? {};
  need(isTable(named) && (!here || isTable(here)), `${where}: roles and heads differ`);
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
