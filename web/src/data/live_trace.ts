// Traces, predictions and effects from the outputs of a live page's graph.

import type { LiveBlock, LivePart, PredictionsPart, TracePart } from "../../generated/payload.ts";
import { FloatNumbers, FloatPlanes } from "./decode.ts";
import type { EffectTable } from "./effects.ts";
import { HeadNumbers } from "./head_numbers.ts";
import type { Feed } from "./live_files.ts";
import type { Media } from "./media.ts";
import { type Block, blockOfFields, Lazy, openTokens, type Trace, type Vectors } from "./trace.ts";

/** Array of the graph. */
export type Tensor = Readonly<{ data: Float32Array; dims: readonly number[] }>;

/** Outputs of one run. */
export type Outputs = Readonly<Record<string, Tensor>>;

/** Input that the model read. */
export interface LiveInputs {
  readonly title: string;
  readonly feeds: readonly Feed[];
  readonly stacks: TracePart["stacks"];
  readonly media: Media;
}

/** Ids of the tokens at which the model predicts: the decoder's, if it has one. */
export function idsOf({ feeds }: Pick<LiveInputs, "feeds">): readonly number[] {
  return feeds.flatMap(({ ids }) => (ids ? [ids] : [])).at(-1) ?? [];
}

const MAX_ANSWERS = 10;
const MAX_POSITIONS = 64;

/** Positions whose logits a trace shows. */
export function predictedRows(live: LivePart, ids: readonly number[]): number[] {
  const all = ids.map((_, position) => position);
  if (live.kind === "next") return all.slice(-MAX_POSITIONS);
  if (live.kind !== "mask") return [];
  return all.filter((position) => ids[position] === live.mask_token).slice(-MAX_POSITIONS);
}

/** Trace of one text; `template` is a stored trace of the same model. */
export function liveTrace(
  live: LivePart,
  template: TracePart,
  input: LiveInputs,
  outputs: Outputs,
  spell: (id: number) => string,
  changed: string | null = null,
): Trace {
  return {
    title: input.title,
    model: live.model,
    changed,
    predictions: predictionsOf(live, idsOf(input), outputs.output, spell),
    effects: null,
    media: input.media,
    blocks: template.blocks.flatMap((part) => {
      const block = live.blocks.find(({ name }) => name === part.name);
      return block ? [blockOf(block, part, input.stacks, outputs)] : [];
    }),
  };
}

function blockOf(
  { name, prefix, causal, layers }: LiveBlock,
  { groups, roles, queries, keys }: TracePart["blocks"][number],
  stacks: TracePart["stacks"],
  outputs: Outputs,
): Block {
  const { data, dims } = outputs[`${prefix}attention`];
  const [, , heads, rows, columns] = dims;
  const size = heads * rows * columns;
  const planes = layers.map(
    (_, i) => new FloatPlanes(columns, data.subarray(i * size, (i + 1) * size), rows),
  );
  const reader = new HeadNumbers({ name, causal, queries: stacks[queries], keys: stacks[keys] });
  const numbers = planes.map((layer, i) => reader.layer(i, layer, heads, null));
  const queryTokens = openTokens(stacks[queries]);
  return blockOfFields({
    name,
    queryTokens,
    keyTokens: queries === keys ? queryTokens : openTokens(stacks[keys]),
    causal,
    layers,
    heads,
    planes: planes.map((layer) => Lazy.of(layer)),
    isFine: true,
    top: null,
    groups,
    corpusRoles: roles,
    numbers: Lazy.of(numbers),
    vectors: new Map(),
    has: () => true,
  });
}

/** Vectors of one layer, as the graph returns them. */
export function liveVectors(block: LiveBlock, outputs: Outputs, layerIndex: number): Vectors {
  const part = (name: string) => {
    const { data, dims } = outputs[block.prefix + name] ?? {};
    if (!data || !dims) return null;
    const shape = dims.slice(2);
    const size = shape.reduce((product, count) => product * count, 1);
    return new FloatNumbers(shape, data.subarray(layerIndex * size, (layerIndex + 1) * size));
  };
  const groups = block.groups?.[layerIndex] ?? Array.from({ length: block.heads }, (_, h) => h);
  return {
    groups,
    scale: block.scales[layerIndex],
    queries: part("queries")!,
    keys: part("keys")!,
    values: part("values"),
    outputs: null,
    scores: null,
  };
}

/** Row of a batched output. */
export function rowOfTensor({ data, dims }: Tensor, ...index: number[]): Float32Array {
  const place = index.reduce((row, at, axis) => row * dims[axis] + at, 0);
  const size = dims.slice(index.length).reduce((product, count) => product * count, 1);
  return data.subarray(place * size, (place + 1) * size);
}

/** Natural logarithms of probabilities: softmax, or a sigmoid for each label. */
export function logProbabilities(logits: Float32Array, exclusive: boolean): Float64Array {
  const softplus = (x: number) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
  if (!exclusive) return Float64Array.from(logits, (logit) => -softplus(-logit));
  const largest = logits.reduce((most, logit) => Math.max(most, logit), Number.NEGATIVE_INFINITY);
  const sum = logits.reduce((total, logit) => total + Math.exp(logit - largest), 0);
  const norm = largest + Math.log(sum);
  return Float64Array.from(logits, (logit) => logit - norm);
}

/** Indices of the largest values, largest first. */
export function topOf(values: Float32Array, count = MAX_ANSWERS): number[] {
  const top: number[] = [];
  for (let i = 0; i < values.length; i++) {
    if (top.length === count && values[i] <= values[top[count - 1]]) continue;
    let place = top.length;
    while (place > 0 && values[top[place - 1]] < values[i]) place--;
    top.splice(place, 0, i);
    if (top.length > count) top.pop();
  }
  return top;
}

function predictionsOf(
  live: LivePart,
  ids: readonly number[],
  output: Tensor,
  spell: (id: number) => string,
): PredictionsPart | null {
  if (live.kind === "vector") return null;
  const isLabel = live.kind === "label";
  const rows = isLabel ? [null] : predictedRows(live, ids);
  if (rows.length === 0) return null;
  const positions = rows.map((position, i) => {
    const logits = isLabel ? rowOfTensor(output, 0) : rowOfTensor(output, 0, i);
    const logs = logProbabilities(logits, live.exclusive);
    const top = topOf(logits).map((id) => ({
      text: isLabel ? live.labels[id] : spell(id),
      probability: Number(Math.exp(logs[id]).toPrecision(5)),
    }));
    return { position, top };
  });
  return { kind: live.kind, positions };
}

/** Output of each head's absence, filled batch by batch. */
export interface Measured {
  /** Values with all heads: log-probabilities of candidates, or the text's vector. */
  readonly before: Float64Array;
  /** Values without each head, by layer and head. */
  readonly after: (Float64Array | undefined)[][];
}

/** Effects on a prediction; heads that were not measured are NaN. */
export function predictionEffects(
  { before, after }: Measured,
  position: number | null,
  candidates: readonly string[],
): EffectTable {
  return {
    kind: "prediction",
    position,
    candidates,
    before: [...before].map(Math.exp),
    without: (layerIndex, head, candidate) =>
      Math.exp(after[layerIndex]?.[head]?.[candidate] ?? Number.NaN),
  };
}

/** Effects on a text's vector; with `other`, the likeness of two texts too. */
export function vectorEffects(
  { before, after }: Measured,
  pooling: string,
  other: Measured | null,
): EffectTable {
  const of = (vector: Float64Array | undefined, second: Float64Array | undefined) =>
    vector && second ? cosine(vector, second) : Number.NaN;
  return {
    kind: "cosine_distance",
    pooling,
    distance: (layerIndex, head) => 1 - of(after[layerIndex]?.[head], before),
    similarity: other && {
      before: cosine(before, other.before),
      after: (layerIndex, head) => of(after[layerIndex]?.[head], other.after[layerIndex]?.[head]),
    },
  };
}

/** Vector of a text: the mean of its tokens, or its first. */
export function pooled(hidden: Tensor, batch: number, pooling: LivePart["pooling"]): Float64Array {
  const [, tokens, units] = hidden.dims;
  const rows = rowOfTensor(hidden, batch);
  const used = pooling === "mean" ? tokens : 1;
  const vector = new Float64Array(units);
  for (let i = 0; i < used * units; i++) vector[i % units] += rows[i] / used;
  return vector;
}

function cosine(a: Float64Array, b: Float64Array): number {
  let [dot, one, two] = [0, 0, 0];
  for (let i = 0; i < a.length; i++) {
    dot += a[i] * b[i];
    one += a[i] ** 2;
    two += b[i] ** 2;
  }
  return dot / Math.sqrt(one * two);
}
