// Images and sound, and the patch or frame that a token stands for.

import type { ImagePart, PiecePart, SoundPart } from "../../generated/payload.ts";
import type { ReadBuffer } from "./decode.ts";

export interface Picture {
  readonly width: number;
  readonly height: number;
  /** RGBA pixels. */
  readonly pixels: Uint8ClampedArray<ArrayBuffer>;
}

export interface Sound {
  readonly seconds: number;
  /** Loudest sample of each stretch, from 0 to 255. */
  readonly peaks: Uint8Array;
}

/** Rectangle of an image; edges are fractions of its height and width. */
export interface Patch extends Readonly<Record<Edge | "image" | "row" | "column", number>> {
  readonly kind: "patch";
}

type Edge = "top" | "left" | "bottom" | "right";

export type Frame = Readonly<{ kind: "frame"; start: number; end: number }>;

export type Piece = Patch | Frame;

export type Media = Readonly<{ pictures: readonly Picture[]; sound: Sound | null }>;

export async function openMedia(
  part: { images?: ImagePart[]; sound?: SoundPart },
  readBuffer: ReadBuffer,
): Promise<Media> {
  const { sound } = part;
  const open = async ({ width, height, pixels }: ImagePart) => ({
    width,
    height,
    pixels: opaque(await readBuffer(pixels, width * height * 3)),
  });
  return {
    pictures: await Promise.all((part.images ?? []).map(open)),
    sound: sound
      ? { seconds: sound.seconds, peaks: await readBuffer(sound.peaks, sound.count) }
      : null,
  };
}

function opaque(rgb: Uint8Array): Uint8ClampedArray<ArrayBuffer> {
  const pixels = new Uint8ClampedArray((rgb.length / 3) * 4).fill(255);
  for (let i = 0, j = 0; i < rgb.length; i += 3, j += 4) {
    pixels[j] = rgb[i];
    pixels[j + 1] = rgb[i + 1];
    pixels[j + 2] = rgb[i + 2];
  }
  return pixels;
}

export function openPiece(part: PiecePart): Piece | null {
  if (part === null) return null;
  const [kind, ...numbers] = part;
  const [a, b, c, top, left, bottom, right] = numbers as number[];
  if (kind === "frame") return { kind, start: a, end: b };
  return { kind: "patch", image: a, row: b, column: c, top, left, bottom, right };
}

/** Patch of one token, or all frames of several tokens; null for other tokens. */
export function pieceOf(
  pieces: readonly (Piece | null)[],
  positions: readonly number[],
): Piece | null {
  const first = pieces[positions[0]] ?? null;
  const last = pieces[positions[positions.length - 1]] ?? null;
  if (positions.length === 1) return first;
  if (first?.kind !== "frame" || last?.kind !== "frame") return null;
  return { kind: "frame", start: first.start, end: last.end };
}
