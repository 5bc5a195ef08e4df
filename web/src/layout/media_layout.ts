// Attention over images and recordings, as marks.

import type { Focus, Matrix } from "../data/filtered_block.ts";
import type { Frame, Patch, Picture, Piece, Sound } from "../data/media.ts";
import { cssOf, type Theme } from "../paint/theme.ts";
import type { Box, Mark } from "./scene.ts";

/** Weight of each piece (patch or frame) of one side. */
export interface Shares {
  readonly side: "query" | "key";
  readonly pieces: readonly (Piece | null)[];
  readonly weights: Float32Array;
  readonly highest: number;
}

/** Attention to the keys' pieces, of the row in focus or on average. With only a column in
 *  focus, attention from the queries' pieces to it. */
export function sharesOf(
  matrix: Matrix,
  focus: Focus,
  queries: readonly (Piece | null)[],
  keys: readonly (Piece | null)[],
): Shares | null {
  const turned = focus.row < 0 && focus.column >= 0 && queries.some(Boolean);
  const side = turned ? "query" : "key";
  const pieces = turned ? queries : keys;
  if (!pieces.some(Boolean)) return null;
  const weights = new Float32Array(pieces.length);
  const rows = focus.row >= 0 ? [focus.row] : Array.from({ length: matrix.rows }, (_, row) => row);
  for (let i = 0; i < weights.length; i++) {
    if (turned) weights[i] = matrix.weights[i * matrix.columns + focus.column];
    else
      for (const row of rows) weights[i] += matrix.weights[row * matrix.columns + i] / rows.length;
  }
  let highest = 0;
  weights.forEach((weight, i) => {
    if (pieces[i] && Math.abs(weight) > highest) highest = Math.abs(weight);
  });
  return { side, pieces, weights, highest };
}

/** Place pictures side by side, as large as fits. */
export function pictureBoxes(
  pictures: readonly Picture[],
  width: number,
  height: number,
  gap = 6,
): Box[] {
  const across = pictures.reduce((sum, picture) => sum + picture.width / picture.height, 0);
  const room = Math.max(20, width - gap * (pictures.length - 1));
  const tall = Math.min(height, room / Math.max(across, 1e-6));
  let x = 0;
  return pictures.map((picture) => {
    const box = { x, y: 0, width: (tall * picture.width) / picture.height, height: tall };
    x += box.width + gap;
    return box;
  });
}

/** Box of a patch with edges on whole pixels, so that neighbors meet. */
export function patchBox(patch: Patch, boxes: readonly Box[]): Box | null {
  const box = boxes[patch.image];
  if (!box) return null;
  const [left, right] = [patch.left, patch.right].map((x) => Math.round(box.x + x * box.width));
  const [top, bottom] = [patch.top, patch.bottom].map((y) => Math.round(box.y + y * box.height));
  return { x: left, y: top, width: right - left, height: bottom - top };
}

/** Opacity of the veil over a patch without attention. */
const VEIL = 0.86;

/** Draw pictures, with a veil over patches that get little attention. */
export function pictureMarks(
  pictures: readonly Picture[],
  boxes: readonly Box[],
  shares: Shares | null,
  theme: Theme,
): Mark[] {
  const marks: Mark[] = pictures.map((picture, i) => ({
    kind: "image",
    ...boxes[i],
    columns: picture.width,
    rows: picture.height,
    pixels: picture.pixels,
    smooth: true,
  }));
  if (!shares || shares.highest <= 0) return marks;
  shares.pieces.forEach((piece, i) => {
    const box = piece?.kind === "patch" ? patchBox(piece, boxes) : null;
    if (!box) return;
    const lit = Math.sqrt(Math.min(1, Math.abs(shares.weights[i]) / shares.highest));
    const fill = cssOf(theme.rgb.panel, VEIL * (1 - (Number.isNaN(lit) ? 0 : lit)));
    marks.push({ kind: "rect", ...box, fill });
  });
  return marks;
}

/** Index of the piece whose patch is under a point, or -1. */
export function patchAt(
  pieces: readonly (Piece | null)[],
  boxes: readonly Box[],
  x: number,
  y: number,
): number {
  return pieces.findIndex((piece) => {
    const box = piece?.kind === "patch" ? patchBox(piece, boxes) : null;
    return (
      box !== null && x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height
    );
  });
}

const AXIS = 16;

/** Draw the wave, the attention to each frame above it, and a time axis below. */
export function timelineMarks(
  sound: Sound,
  shares: Shares | null,
  width: number,
  height: number,
  theme: Theme,
): Mark[] {
  const marks: Mark[] = [];
  const floor = height - AXIS;
  const wave = Math.round(floor * 0.42);
  const middle = floor - wave / 2;
  const columns = Math.max(1, Math.min(sound.peaks.length, Math.floor(width / 2)));
  for (let i = 0; i < columns; i++) {
    const from = Math.floor((i * sound.peaks.length) / columns);
    const to = Math.max(from + 1, Math.floor(((i + 1) * sound.peaks.length) / columns));
    const tall = Math.max(1, (Math.max(...sound.peaks.subarray(from, to)) / 255) * wave);
    const place = { x: (i * width) / columns, y: middle - tall / 2, height: tall };
    const bar = { ...place, width: Math.max(1, width / columns - 0.5) };
    marks.push({ kind: "rect", ...bar, fill: theme.tone.strong });
  }
  const room = floor - wave - 3;
  if (shares && shares.highest > 0) {
    shares.pieces.forEach((piece, i) => {
      if (piece?.kind !== "frame" || piece.start >= sound.seconds) return;
      const tall = (Math.abs(shares.weights[i]) / shares.highest) * room;
      if (!(tall >= 0.5)) return;
      const bar = { ...frameSpan(piece, sound, width), y: room - tall, height: tall };
      marks.push({ kind: "rect", ...bar, fill: theme.tone.accent });
    });
  }
  for (const second of ticks(sound.seconds, width)) {
    const x = (second / sound.seconds) * width;
    marks.push({ kind: "rect", x, y: floor, width: 1, height: 4, fill: theme.tone.strong });
    const anchor = second === 0 ? "start" : x > width - 24 ? "end" : "middle";
    const text = `${Number(second.toFixed(2))} s`;
    marks.push({ kind: "text", x, y: height - 2, text, size: 10, anchor, fill: theme.tone.soft });
  }
  return marks;
}

function frameSpan(frame: Frame, sound: Sound, width: number): { x: number; width: number } {
  const x = (frame.start / sound.seconds) * width;
  const end = (Math.min(frame.end, sound.seconds) / sound.seconds) * width;
  return { x, width: Math.max(1, end - x) };
}

/** Round seconds about 70 pixels apart. */
export function ticks(seconds: number, width: number): number[] {
  const wanted = (seconds * 70) / Math.max(width, 70);
  const steps = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60];
  const step = steps.find((size) => size >= wanted) ?? 120;
  return Array.from({ length: Math.floor(seconds / step + 1e-9) + 1 }, (_, i) => i * step);
}
