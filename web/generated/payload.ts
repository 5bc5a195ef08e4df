// Generated from src/headscope/page/payload_types.py by generate_types.py.

export type PageHost = "file" | "notebook" | "lab" | "live";

export type RoleId = "previous_token" | "next_token" | "current_token" | "duplicate_token" | "induction" | "broad" | "first_token" | "special_token" | "punctuation";

export type PiecePart = (string | number)[] | null;

/** Real numbers as 16-bit integers, one step (scale) for each index of the first `axes`. */
export interface NumbersPart {
  shape: number[];
  axes: number;
  data: number;
  steps: number;
}

/** Tokens of one stack. */
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

/** Role of one head over a corpus, or in a text. */
export interface RolePart {
  role: RoleId | null;
  /** Share of attention with this role, over the queries that could show it. */
  share: number | null;
  queries: number;
}

/** Kept keys of each row. */
export interface TopPart {
  count: number;
  /** Buffer of each layer, `head query rank`: steps from key to key, low bytes and high bytes. */
  steps: number[];
  /** Buffer of coarse codes, `layer head query`: the sum of the weights that are not kept. */
  rest: number;
}

/** One attention block of a trace. */
export interface BlockPart {
  name: string;
  queries: string;
  keys: string;
  causal: boolean;
  layers: number[];
  heads: number;
  present: number[][];
  shape: number[];
  /** Buffer of each layer, `head query key`; `head query rank` where rows keep some keys. */
  coarse: number[];
  fine: number[] | null;
  /** Buffer of float32, `layer head query`; missing if all rows sum to 1. */
  sums?: number;
  /** Buffer of bytes, `layer query key`; missing if queries see all keys, or all earlier ones. */
  visible?: number;
  groups: number[][] | null;
  /** Roles over a corpus, by layer and head. */
  roles?: RolePart[][];
  vectors: VectorsPart[];
  top?: TopPart;
}

/** One predicted token or label. */
export interface Answer {
  text: string;
  probability: number;
}

/** Top predictions at one position; null is the whole text. */
export interface PredictionPart {
  position: number | null;
  top: Answer[];
}

/** Top predictions of a trace. */
export interface PredictionsPart {
  kind: "next" | "mask" | "label";
  positions: PredictionPart[];
}

/** Log-probabilities of the candidates without each head. */
export interface PredictionEffects {
  kind: "prediction";
  position: number | null;
  candidates: string[];
  /** Log-probabilities with all heads. */
  before: number[];
  after: NumbersPart;
}

/** Cosine similarity of two texts, with all heads and without each. */
export interface SimilarityPart {
  before: number;
  after: ((number | null)[])[];
}

/** Cosine distance of a text's vector with and without each head. */
export interface VectorEffects {
  kind: "cosine_distance";
  pooling: string;
  cosine_distance: ((number | null)[])[];
  cosine_similarity: SimilarityPart | null;
}

export type EffectsPart = PredictionEffects | VectorEffects;

/** Image of a trace; `pixels` is a buffer of RGB bytes. */
export interface ImagePart {
  width: number;
  height: number;
  pixels: number;
}

/** Audio of a trace; `peaks` is a buffer. */
export interface SoundPart {
  seconds: number;
  count: number;
  peaks: number;
}

/** A trace: tokens, attention, predictions and effects. */
export interface EditedPart {
  model: string;
  /** Description of the edits of the model. */
  changed: string | null;
  over?: string;
  stacks: Record<string, TokensPart>;
  blocks: BlockPart[];
  predictions: PredictionsPart | null;
  effects: EffectsPart | null;
  images?: ImagePart[];
  sound?: SoundPart;
}

/** A trace with its title. */
export interface TracePart extends EditedPart {
  title: string;
}

/** A value, and its interval where it has one. */
export interface Bounded {
  value: number;
  low: number | null;
  high: number | null;
}

/** Accuracy of a head for one relation, beside a rule without attention. */
export interface Relation extends Bounded {
  name: string;
  baseline: number | null;
  baseline_name: string;
}

/** One measured number of a head. */
export interface CardNumber extends Bounded {
  name: string;
  title: string;
  unit: string;
}

/** A document with its strongest links: query, key, weight. */
export interface LinkedDocument {
  tokens: string[];
  links: [number, number, number][];
}

/** A document of one fifth of the scale of a head's highest weight. */
export interface SampleDocument extends LinkedDocument {
  /** Share of all documents in this fifth. */
  share: number;
}

/** A `HeadCard` as pages show it. */
export interface PageCard {
  sentences: string[];
  relations: Relation[];
  /** Shares of attention by target. */
  looks: CardNumber[];
  /** Other measurements. */
  numbers: CardNumber[];
  exemplars: LinkedDocument[];
  /** Documents from strong to weak, one for each fifth of the scale (`head_samples`). */
  samples?: SampleDocument[];
  neighbors: string[];
}

/** Cards of all heads, by `L0H1`, and the meaning of each measurement. */
export interface EvidencePart {
  about: string;
  meanings: Record<string, string>;
  cards: Record<string, PageCard>;
}

/** A caption and the selection it is about. */
export interface StoryStep {
  caption: string;
  selection: string;
}

/** Heads of the tour through a page of a language model, as `L0H1`. */
export interface TourPart {
  /** Head that reads the predicted word most, else one word most. */
  reader: string;
  /** Head with the largest effect on the prediction. */
  decider: string;
}

/** A question about the heads of a page, and its answer. */
export interface ExercisePart {
  question: string;
  selection: string;
  /** Heads with the largest effect, heads named in `heads`, or heads with a role. */
  answer: "effect" | "heads" | RoleId;
  heads: string[];
}

/** One exact wire; see `headscope.results.wires.Wire`. Heads are −1 where there is none. */
export interface WirePart {
  source: string;
  reader: string;
  by: "q" | "k" | "v" | "mlp" | "logits";
  source_layer: number;
  source_head: number;
  layer: number;
  reader_heads: number[];
  share: number;
  low: number | null;
  high: number | null;
  stability: number | null;
  p: number | null;
  /** Position where the wire is read; −1 if it was not measured. */
  at: number;
  part: number | null;
  by_head: Record<string, number>;
  /** Share in each pair; their mean is `share`. */
  values: number[];
}

/** Faithfulness of circuits with a share k of all wires, on held-out pairs. */
export interface CurvePart {
  k: number[];
  faithfulness: (number | null)[];
  cpr: number;
  cmd: number;
  pairs: number;
}

/** The largest wires of a task, drawn over its first pair. */
export interface WiresPart {
  model: string;
  task: string;
  holds: string;
  tokens: string[][];
  /** Positions whose tokens differ. */
  changed: number[];
  /** Target and foil. */
  answers: string[];
  position: number;
  total: number;
  exact: number;
  pairs: string[][];
  /** Template of each pair. */
  templates: number[];
  wires: WirePart[];
  curve: CurvePart | null;
}

/** One trace, or two to compare. */
export interface Example {
  title: string;
  traces: number[];
}

/** A file beside the page, or an element of the page with this id (base64). */
export interface LiveFile {
  name: string;
  bytes: number;
  /** Hash of the bytes as stored, before they are unpacked. */
  sha256: string;
  source: "file" | "element";
}

/** Input of the graph: ids, or a buffer of float32. `dims` are those of one row of a batch. */
export interface LiveTensor {
  name: string;
  dims: number[];
  ids: number[] | null;
  data: number | null;
}

/** Attention block of the graph; gates count layers over all blocks, in their order. */
export interface LiveBlock {
  name: string;
  /** First letters of the names of its outputs. */
  prefix: string;
  layers: number[];
  heads: number;
  groups: number[][] | null;
  scales: (number | null)[];
  causal: boolean;
  /** Names among queries, keys, values that the graph returns. */
  vectors: string[];
}

/** Inputs with the numbers that the graph gave when it was exported. */
export interface LiveCase {
  input: LiveTensor[];
  /** Row of the gate, and the head, whose output is 0. */
  off: [number, number] | null;
  /** Positions of the logits. */
  rows: number[];
  /** Buffers of float32 by output: `output`, and attention of each block. */
  outputs: Record<string, number>;
  /** Largest difference: of weights as it is, of the output times its largest value. */
  tolerance: number;
}

/** Differences measured at export, and cases to repeat in the page. */
export interface LiveProof {
  /** Largest difference of attention between graph and model, both with all digits. */
  maps: number;
  /** Largest difference of outputs, divided by the largest output. */
  output: number;
  /** The same two differences with the weights as they are stored. */
  storage_maps: number;
  storage_output: number;
  cases: LiveCase[];
}

/** Model that runs in the page. */
export interface LivePart {
  model: string;
  kind: "next" | "mask" | "label" | "vector";
  labels: string[];
  /** Whether labels exclude one another: softmax, otherwise a sigmoid each. */
  exclusive: boolean;
  pooling: "mean" | "first";
  /** The main one first. */
  blocks: LiveBlock[];
  has_types: boolean;
  max_tokens: number;
  bytes: number;
  /** Estimated bytes that the tab needs. */
  memory: number;
  storage: string;
  /** Parts of the model, to be joined in this order. */
  files: LiveFile[];
  wasm: LiveFile;
  worker: LiveFile;
  /** Tables, or the names of all tokens where typed texts are refused. */
  tokenizer: LiveFile;
  tokenizer_refusal: string | null;
  mask_token: number | null;
  texts: (string | null)[];
  /** Inputs of each stored trace. */
  inputs: (LiveTensor[] | null)[];
  proof: LiveProof;
}

/** Header of the payload; buffers follow. */
export interface Header {
  format: string;
  version: number;
  place: PageHost;
  selection: string;
  story: StoryStep[];
  tour?: TourPart;
  exercise?: ExercisePart[];
  wires?: WiresPart;
  examples: Example[];
  /** Training step of each example: one text at several checkpoints. */
  steps?: number[];
  /** Shell command for a live page; empty for attention without a model. */
  command: string;
  evidence: EvidencePart | null;
  /** Address of a report on the model. */
  report?: string;
  live?: LivePart;
  traces: TracePart[];
}

/** One term of the residual stream in a score. */
export interface ScoreTerm {
  name: string;
  query_side: number;
  key_side: number;
  share: number;
}

/** One score as a sum over the terms of the residual stream. */
export interface ScoreSum {
  total: number;
  parts: ScoreTerm[];
  /** Description of the contrast. */
  against: string;
}
