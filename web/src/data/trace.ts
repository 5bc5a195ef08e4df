// Trace in memory: tokens at once, layers and vectors when they are first read.

import { type Signal, signal } from "@preact/signals";
import type {
  BlockPart,
  Header,
  NumbersPart,
  PredictionsPart,
  TokensPart,
  TracePart,
  VectorsPart,
} from "../../generated/payload.ts";
import {
  bufferReader,
  bytesOfBase64,
  COARSE,
  CodedNumbers,
  CodedPlanes,
  type Numbers,
  type Planes,
  type ReadBuffer,
} from "./decode.ts";
import { type EffectTable, openEffects } from "./effects.ts";
import { type Media, openMedia, openPiece, type Piece } from "./media.ts";
import { parseHeader } from "./parse.ts";
import { spelled } from "./tokens.ts";

export interface Tokens {
  readonly texts: readonly string[];
  readonly special: readonly boolean[];
  readonly segments: readonly number[];
  readonly generated: readonly boolean[];
  readonly words: readonly number[];
  /** Positions of each word's tokens; a token outside words is alone. */
  readonly groups: readonly (readonly number[])[];
  readonly wordTexts: readonly string[];
  /** Patch or frame of each token; null for text. */
  readonly pieces: readonly (Piece | null)[];
}

export interface Vectors {
  readonly groups: readonly number[];
  readonly scale: number | null;
  readonly queries: Numbers;
  readonly keys: Numbers;
  readonly values: Numbers | null;
  readonly outputs: Numbers | null;
  readonly scores: Numbers | null;
}

/** Thumbnails of all heads: maximum weight of each cell, as coarse codes. */
type Thumbs = Readonly<{ rows: number; columns: number; codes: Uint8Array }>;

export interface Block {
  readonly name: string;
  readonly queryTokens: Tokens;
  readonly keyTokens: Tokens;
  readonly causal: boolean;
  readonly layers: readonly number[];
  readonly heads: number;
  readonly planes: readonly Lazy<Planes>[];
  readonly isFine: boolean;
  /** Strongest keys that each row keeps, and the sum of its other weights; null for all keys. */
  readonly top: Readonly<{
    keys: number;
    rest(layerIndex: number, head: number, query: number): number;
  }> | null;
  readonly thumbs: Thumbs;
  readonly groups: readonly (readonly number[])[] | null;
  readonly roles: BlockPart["roles"];
  readonly statistics: Readonly<Record<string, (number | null)[][]>>;
  /** Vectors by layer number; more are added on request. */
  readonly vectors: Map<number, Lazy<Vectors>>;
  has(layerIndex: number, head: number): boolean;
}

export interface Trace {
  readonly title: string;
  readonly model: string;
  readonly changed: string | null;
  readonly predictions: PredictionsPart | null;
  readonly effects: EffectTable | null;
  readonly blocks: readonly Block[];
  readonly media: Media;
}

/** Header, traces and buffers that stand in the document. */
export async function openDocument(): Promise<{
  header: Header;
  traces: Trace[];
  readBuffer: ReadBuffer;
}> {
  const header = parseHeader(document.getElementById("headscope-header")?.textContent ?? "");
  const elements = document.querySelectorAll<HTMLElement>("script[data-buffer]");
  const readBuffer = bufferReader((index) => {
    const text = elements[index]?.textContent;
    return text ? bytesOfBase64(text) : null;
  });
  return { header, traces: await openTraces(header, readBuffer), readBuffer };
}

export async function openTraces(
  header: Pick<Header, "traces">,
  readBuffer: ReadBuffer,
): Promise<Trace[]> {
  return Promise.all(header.traces.map((part) => openTrace(part, readBuffer)));
}

async function openTrace(part: TracePart, readBuffer: ReadBuffer): Promise<Trace> {
  const stacks = new Map(Object.entries(part.stacks).map(([name, t]) => [name, openTokens(t)]));
  const { title, model, changed, predictions } = part;
  const [blocks, media, effects] = await Promise.all([
    Promise.all(part.blocks.map((block) => openBlock(block, stacks, readBuffer))),
    openMedia(part, readBuffer),
    openEffects(part.effects, readBuffer),
  ]);
  return { title, model, changed, predictions, effects, blocks, media };
}

async function openBlock(
  part: BlockPart,
  stacks: Map<string, Tokens>,
  readBuffer: ReadBuffer,
): Promise<Block> {
  const [, heads, queries, keys] = part.shape;
  const size = heads * queries * keys;
  const codes = await readBuffer(part.thumb, product(part.thumb_shape));
  const rest =
    part.rest === undefined ? null : await readBuffer(part.rest, product(part.shape.slice(0, 3)));
  const layer = (index: number) =>
    new Lazy(async () => {
      // Thumbnails of a short text are not pooled: they are its coarse planes.
      const coarse = part.coarse.length
        ? readBuffer(part.coarse[index], size)
        : codes.subarray(index * size, (index + 1) * size);
      const fine = part.fine && readBuffer(part.fine[index], Math.ceil(size / 2));
      return new CodedPlanes([heads, queries, keys], await coarse, await fine);
    });
  return {
    name: part.name,
    queryTokens: stacks.get(part.queries)!,
    keyTokens: stacks.get(part.keys)!,
    causal: part.causal,
    layers: part.layers,
    heads: part.heads,
    planes: part.layers.map((_, index) => layer(index)),
    isFine: part.fine !== null,
    top: rest && {
      keys: part.top!,
      rest: (index, head, query) => COARSE[rest[(index * heads + head) * queries + query]],
    },
    thumbs: {
      rows: part.thumb_shape[2],
      columns: part.thumb_shape[3],
      codes,
    },
    groups: part.groups,
    roles: part.roles,
    statistics: part.statistics,
    vectors: new Map(
      part.vectors.map((v) => [v.layer, new Lazy(() => openVectors(v, readBuffer))] as const),
    ),
    has: (layerIndex, head) => part.present[layerIndex]?.[head] === 1,
  };
}

export async function openVectors(part: VectorsPart, readBuffer: ReadBuffer): Promise<Vectors> {
  const open = (numbers: NumbersPart | null | undefined) =>
    numbers ? openNumbers(numbers, readBuffer) : null;
  const [queries, keys, values, outputs, scores] = await Promise.all([
    openNumbers(part.queries, readBuffer),
    openNumbers(part.keys, readBuffer),
    open(part.values),
    open(part.outputs),
    open(part.scores),
  ]);
  return { groups: part.groups, scale: part.scale, queries, keys, values, outputs, scores };
}

export async function openNumbers(part: NumbersPart, readBuffer: ReadBuffer): Promise<Numbers> {
  const [data, steps] = await Promise.all([
    readBuffer(part.data, 2 * product(part.shape)),
    readBuffer(part.steps, 4 * product(part.shape.slice(0, part.axes))),
  ]);
  return new CodedNumbers(part.shape, part.axes, data, steps);
}

export function openTokens(part: TokensPart): Tokens {
  const texts = spelled(part.tokens);
  const groups: number[][] = [];
  const where = new Map<number, number[]>();
  part.words.forEach((word, position) => {
    const group = (word >= 0 && where.get(word)) || [];
    if (group.length === 0) groups.push(group);
    group.push(position);
    if (word >= 0) where.set(word, group);
  });
  return {
    texts,
    special: part.special.map(Boolean),
    segments: part.segments,
    generated: part.generated.map(Boolean),
    words: part.words,
    groups,
    wordTexts: groups.map(([first]) =>
      part.words[first] < 0 ? texts[first] : part.word_texts[part.words[first]],
    ),
    pieces: part.pieces?.map(openPiece) ?? texts.map(() => null),
  };
}

function product(shape: readonly number[]): number {
  return shape.reduce((total, size) => total * size, 1);
}

export class Lazy<T> {
  private readonly arrived: Signal<T | null> = signal(null);
  private started: Promise<T> | null = null;
  readonly error = signal("");

  constructor(private readonly load: () => Promise<T>) {}

  /** Value that is there. */
  static of<T>(value: T): Lazy<T> {
    const lazy = new Lazy(async () => value);
    lazy.arrived.value = value;
    return lazy;
  }

  /** Value, or null until it arrives; reading it starts the loading. */
  get value(): T | null {
    if (!this.started) this.whole().catch(() => {});
    return this.arrived.value;
  }

  whole(): Promise<T> {
    this.started ??= this.load().then(
      (result) => {
        this.arrived.value = result;
        return result;
      },
      (error: unknown) => {
        this.error.value = error instanceof Error ? error.message : String(error);
        throw error;
      },
    );
    return this.started;
  }
}
