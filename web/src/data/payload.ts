// Types of the payload that Python writes (src/headscope/page). Checks are in parse.ts.

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
  /** Patches and frames; missing for plain text. */
  pieces?: PiecePart[];
}

/** Vectors of one layer. */
export interface VectorsPart {
  layer: number;
  /** Factor on q·k; null if it is not a plain factor (several products). */
  scale: number | null;
  /** Key group of each head. */
  groups: number[];
  queries: NumbersPart;
  keys: NumbersPart;
  values?: NumbersPart | null;
  outputs?: NumbersPart | null;
  scores?: NumbersPart | null;
}

export type RoleId =
  | "previous_token"
  | "next_token"
  | "current_token"
  | "duplicate_token"
  | "induction"
  | "broad"
  | "first_token"
  | "special_token"
  | "punctuation";

export interface Role {
  role: RoleId | null;
  /** Share of attention with this role, over the queries that could show it. */
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
  /** Buffer of each layer. */
  coarse: number[];
  fine: number[] | null;
  thumb: number;
  thumb_shape: number[];
  groups: number[][] | null;
  /** Roles over the corpus if there is one, then `here` has those in this text. */
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
  /** Null is the whole text. */
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
  /** Description of the edits of the model. */
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
  /** Shares of attention by target. */
  looks: Measured[];
  /** Other measurements. */
  numbers: Measured[];
  exemplars: { tokens: string[]; links: [query: number, key: number, weight: number][] }[];
  neighbors: string[];
}

export interface Evidence {
  about: string;
  /** Meaning of each measurement, by name. */
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
  /** Address of a report on the model. */
  report?: string;
  traces: TracePart[];
}

/** Image of a trace; `pixels` is a buffer of RGB bytes. */
export interface ImagePart {
  width: number;
  height: number;
  pixels: number;
}

export interface SoundPart {
  seconds: number;
  count: number;
  peaks: number;
}

export type PiecePart = (string | number)[] | null;

/** One score as a sum over the terms of the residual stream. */
export interface ScoreSum {
  readonly total: number;
  readonly parts: readonly {
    readonly name: string;
    readonly query_side: number;
    readonly key_side: number;
    readonly share: number;
  }[];
  /** Description of the contrast. */
  readonly against: string;
}
