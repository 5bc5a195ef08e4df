// Trace in memory: tokens at once, layers and vectors when they are first read.

import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type {
  BlockPart,
  Header,
  NumbersPart,
  PredictionsPart,
  RolePart,
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
  TopPlanes,
} from "./decode.ts";
import { type EffectTable, openEffects } from "./effects.ts";
import { HeadNumbers, type LayerNumbers, NO_ROLE, THUMB_SIDE } from "./head_numbers.ts";
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

/** Roles of all heads, by layer and head. */
export interface Roles {
  readonly source: "text" | "corpus";
  readonly heads: readonly (readonly RolePart[])[];
  /** Roles in this text, where `heads` has those over a corpus. */
  readonly here?: Roles["heads"] | undefined;
}

/** Parts of a block that stand in the payload, or come from a run. */
interface BlockFields {
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
  readonly groups: readonly (readonly number[])[] | null;
  /** Roles over a corpus. */
  readonly corpusRoles: Roles["heads"] | undefined;
  /** Numbers of all layers. */
  readonly numbers: Lazy<readonly LayerNumbers[]>;
  /** Vectors by layer number; more are added on request. */
  readonly vectors: Map<number, Lazy<Vectors>>;
  has(layerIndex: number, head: number): boolean;
}

/** Attention block. What its numbers give is empty until they arrive. */
export interface Block extends BlockFields {
  readonly roles: Roles;
  /** Statistics by name, then by layer and head. */
  readonly statistics: Readonly<Record<string, readonly (readonly (number | null)[])[]>>;
  /** Cells of one head's thumbnail; null until they arrive. */
  thumb(layerIndex: number, head: number): Float32Array | null;
}

export function blockOfFields(fields: BlockFields): Block {
  const { layers, heads, corpusRoles, numbers } = fields;
  const unnamed = layers.map(() => new Array<RolePart>(heads).fill(NO_ROLE));
  const here = computed(() => numbers.value?.map(({ roles }) => roles));
  const statistics: ReadonlySignal<Block["statistics"]> = computed(() => {
    const all = numbers.value ?? [];
    const names = Object.keys(all[0]?.statistics ?? {});
    return Object.fromEntries(names.map((name) => [name, all.map((l) => l.statistics[name])]));
  });
  return {
    ...fields,
    get roles() {
      const inText = fields.top ? undefined : (here.value ?? unnamed);
      if (corpusRoles) return { source: "corpus" as const, heads: corpusRoles, here: inText };
      return { source: "text" as const, heads: inText ?? unnamed };
    },
    get statistics() {
      return statistics.value;
    },
    thumb(layerIndex, head) {
      return numbers.value?.[layerIndex].thumbs[head] ?? null;
    },
  };
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
  let left = AT_ONCE;
  const isAtOnce = ({ shape, top }: BlockPart) => {
    const isSmall = !top && product(shape) <= left;
    if (isSmall) left -= product(shape);
    return isSmall;
  };
  return Promise.all(header.traces.map((part) => openTrace(part, readBuffer, isAtOnce)));
}

/** Weights up to which the numbers of the first blocks are derived before a page opens. */
const AT_ONCE = 2 ** 19;

async function openTrace(
  part: TracePart,
  readBuffer: ReadBuffer,
  isAtOnce: (part: BlockPart) => boolean,
): Promise<Trace> {
  const tokens = new Map(Object.entries(part.stacks).map(([name, t]) => [name, openTokens(t)]));
  const { title, model, changed, predictions } = part;
  const [blocks, media, effects] = await Promise.all([
    Promise.all(
      part.blocks.map((block) =>
        openBlock(block, part.stacks, tokens, readBuffer, isAtOnce(block)),
      ),
    ),
    openMedia(part, readBuffer),
    openEffects(part.effects, readBuffer),
  ]);
  return { title, model, changed, predictions, effects, blocks, media };
}

async function openBlock(
  part: BlockPart,
  stacks: TracePart["stacks"],
  tokens: Map<string, Tokens>,
  readBuffer: ReadBuffer,
  isAtOnce: boolean,
): Promise<Block> {
  const [, heads, queries, keys] = part.shape;
  const { top, fine, layers } = part;
  const size = heads * queries * keys;
  const rest = top && (await readBuffer(top.rest, product(part.shape.slice(0, 3))));
  const shape = [heads, queries, keys] as const;
  const open = async (index: number): Promise<CodedPlanes | TopPlanes> => {
    if (top) {
      const kept = heads * queries * top.count;
      const reads = [readBuffer(part.coarse[index], kept), readBuffer(top.steps[index], 2 * kept)];
      const [codes, steps] = await Promise.all(reads);
      return new TopPlanes(shape, top.count, codes, steps);
    }
    const [codes, levels] = await Promise.all([
      readBuffer(part.coarse[index], size),
      fine && readBuffer(fine[index], Math.ceil(size / 2)),
    ]);
    return new CodedPlanes(shape, codes, levels);
  };
  const planes = layers.map((_, index) => new Lazy(() => open(index)));
  // The layers of a long text are read one by one after the first picture, and not kept.
  const layerAt = (index: number) => (isAtOnce ? planes[index].whole() : open(index));
  const numbers = new Lazy(async () => {
    await (isAtOnce ? Promise.all(planes.map((lazy) => lazy.whole())) : drawn());
    return deriveNumbers(part, stacks, readBuffer, layerAt);
  });
  if (isAtOnce) await numbers.whole();
  return blockOfFields({
    name: part.name,
    queryTokens: tokens.get(part.queries)!,
    keyTokens: tokens.get(part.keys)!,
    causal: part.causal,
    layers,
    heads,
    planes,
    isFine: fine !== null,
    top:
      top && rest
        ? {
            keys: top.count,
            rest: (index, head, query) => COARSE[rest[(index * heads + head) * queries + query]],
          }
        : null,
    groups: part.groups,
    corpusRoles: part.roles,
    numbers,
    vectors: new Map(
      part.vectors.map((v) => [v.layer, new Lazy(() => openVectors(v, readBuffer))] as const),
    ),
    has: (layerIndex, head) => part.present[layerIndex]?.[head] === 1,
  });
}

/** Milliseconds of deriving after which the page may draw. */
const BURST = 12;

/** Wait until the page has drawn; tests without a screen do not wait. */
const drawn = () =>
  new Promise<unknown>((resolve) => {
    if (!globalThis.requestAnimationFrame) setTimeout(resolve);
    else requestAnimationFrame(() => setTimeout(resolve));
  });

async function deriveNumbers(
  part: BlockPart,
  stacks: TracePart["stacks"],
  readBuffer: ReadBuffer,
  layerAt: (index: number) => Promise<CodedPlanes | TopPlanes>,
): Promise<LayerNumbers[]> {
  const [layers, heads, queries, keys] = part.shape;
  const read = async (buffer: number | undefined, bytes: number) =>
    buffer === undefined ? null : readBuffer(buffer, bytes);
  const [bytes, visible] = await Promise.all([
    read(part.sums, 4 * layers * heads * queries),
    read(part.visible, layers * queries * keys),
  ]);
  const sums = bytes && new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  const text = { ...part, queries: stacks[part.queries], keys: stacks[part.keys], visible };
  const reader = new HeadNumbers(text);
  const numbers: LayerNumbers[] = [];
  let since = performance.now();
  for (let index = 0; index < layers; index++) {
    const layer = await layerAt(index);
    const sumOf = (head: number, query: number) =>
      sums?.[(index * heads + head) * queries + query] ?? 1;
    if (layer instanceof TopPlanes) {
      // Statistics and roles need whole rows.
      const thumbs = Array.from({ length: heads }, (_, head) => layer.maxima(head, THUMB_SIDE));
      numbers.push({ thumbs, statistics: {}, roles: [] });
    } else numbers.push(reader.layer(index, layer, heads, sumOf));
    if (performance.now() - since > BURST) {
      await drawn();
      since = performance.now();
    }
  }
  return numbers;
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
