// A trace in memory: tokens, planes and vectors of every block, ready for the views.

import { gunzip } from "./buffer.ts";
import { Planes } from "./codes.ts";
import { type Media, openMedia, openPiece, type Piece } from "./media.ts";
import type { BlockPart, Header, NumbersPart, TokensPart, TracePart } from "./payload.ts";
import { PayloadError } from "./payload.ts";
import { Numbers } from "./vectors.ts";

export interface Tokens {
  readonly texts: readonly string[];
  readonly special: readonly boolean[];
  readonly segments: readonly number[];
  readonly generated: readonly boolean[];
  /** Positions of each word's tokens; a token outside words is alone. */
  readonly groups: readonly (readonly number[])[];
  readonly wordTexts: readonly string[];
  /** What tokens are that are no text; null for text. */
  readonly pieces: readonly (Piece | null)[];
}

export interface Vectors {
  readonly layers: readonly number[];
  readonly groups: readonly number[];
  readonly scales: readonly (number | null)[];
  readonly queries: Numbers;
  readonly keys: Numbers;
  readonly values: Numbers | null;
  readonly outputs: Numbers | null;
  readonly scores: Numbers | null;
}

export interface Block {
  readonly name: string;
  readonly queryTokens: Tokens;
  readonly keyTokens: Tokens;
  readonly causal: boolean;
  readonly layers: readonly number[];
  readonly heads: number;
  readonly planes: Planes;
  readonly statistics: Readonly<Record<string, (number | null)[][]>>;
  readonly vectors: Vectors | null;
  readonly hidden: { states: readonly number[]; numbers: Numbers } | null;
  /** Whether the layer (by index) has this head. */
  has(layerIndex: number, head: number): boolean;
}

export interface Trace {
  readonly title: string;
  readonly model: string;
  readonly blocks: readonly Block[];
  readonly media: Media;
}

/** Unpack every buffer and build the traces of a payload. */
export async function openTraces(
  header: Header,
  packed: readonly Uint8Array<ArrayBuffer>[],
): Promise<Trace[]> {
  const buffers = await Promise.all(packed.map(gunzip));
  const take = (index: number, bytes: number): Uint8Array<ArrayBuffer> => {
    const buffer = buffers[index];
    if (buffer?.length !== bytes) {
      throw new PayloadError(
        `The data of this page is cut off or damaged: block ${index} has ` +
          `${buffer?.length ?? 0} bytes, expected ${bytes}.`,
      );
    }
    return buffer;
  };
  return header.traces.map((part) => openTrace(part, take));
}

export type Take = (index: number, bytes: number) => Uint8Array<ArrayBuffer>;

function openTrace(part: TracePart, take: Take): Trace {
  const stacks = new Map(Object.entries(part.stacks).map(([name, t]) => [name, openTokens(t)]));
  return {
    title: part.title,
    model: part.model,
    blocks: part.blocks.map((block) => openBlock(block, part, stacks, take)),
    media: openMedia(part, take),
  };
}

function openBlock(
  part: BlockPart,
  trace: TracePart,
  stacks: Map<string, Tokens>,
  take: Take,
): Block {
  const size = product(part.shape);
  const fine = part.fine === null ? null : take(part.fine, Math.ceil(size / 2));
  const hidden = trace.hidden[part.queries];
  const v = part.vectors;
  return {
    name: part.name,
    queryTokens: stacks.get(part.queries)!,
    keyTokens: stacks.get(part.keys)!,
    causal: part.causal,
    layers: part.layers,
    heads: part.heads,
    planes: new Planes(
      part.shape as [number, number, number, number],
      take(part.coarse, size),
      fine,
    ),
    statistics: part.statistics,
    vectors: v && {
      layers: v.layers,
      groups: v.groups,
      scales: v.scales,
      queries: openNumbers(v.queries, take),
      keys: openNumbers(v.keys, take),
      values: v.values && openNumbers(v.values, take),
      outputs: v.outputs && openNumbers(v.outputs, take),
      scores: v.scores && openNumbers(v.scores, take),
    },
    hidden: hidden ? { states: hidden.states, numbers: openNumbers(hidden, take) } : null,
    has: (layerIndex, head) => part.present[layerIndex]?.[head] === 1,
  };
}

function openNumbers(part: NumbersPart, take: Take): Numbers {
  const data = take(part.data, 2 * product(part.shape));
  const steps = take(part.steps, 4 * product(part.shape.slice(0, part.axes)));
  return new Numbers(part.shape, part.axes, data, steps);
}

function openTokens(part: TokensPart): Tokens {
  const groups: number[][] = [];
  const where = new Map<number, number[]>();
  part.words.forEach((word, position) => {
    const known = word < 0 ? undefined : where.get(word);
    if (known) {
      known.push(position);
      return;
    }
    const group = [position];
    groups.push(group);
    if (word >= 0) where.set(word, group);
  });
  return {
    texts: part.tokens,
    special: part.special.map(Boolean),
    segments: part.segments,
    generated: part.generated.map(Boolean),
    groups,
    wordTexts: groups.map(([first]) =>
      part.words[first] < 0 ? part.tokens[first] : part.word_texts[part.words[first]],
    ),
    pieces: part.pieces?.map(openPiece) ?? part.tokens.map(() => null),
  };
}

function product(shape: readonly number[]): number {
  return shape.reduce((total, size) => total * size, 1);
}
