// The patch of a picture, as small as a token.

import type { Media, Piece } from "../data/media.ts";
import type { ImageMark } from "../layout/scene.ts";
import { canvasOf } from "../paint/canvas.ts";
import { make } from "./element.ts";

const SIDE = 28;

const marks = new WeakMap<object, ImageMark>();

/** A canvas with a patch's pixels; null for what is no patch of a picture. */
export function patchThumbnail(piece: Piece | null, media: Media): HTMLCanvasElement | null {
  const picture = piece?.kind === "patch" ? media.pictures[piece.image] : undefined;
  if (piece?.kind !== "patch" || !picture) return null;
  const { width, height, pixels } = picture;
  let mark = marks.get(picture);
  if (!mark) {
    mark = { kind: "image", x: 0, y: 0, width, height, columns: width, rows: height, pixels };
    marks.set(picture, mark);
  }
  const canvas = make("canvas", { class: "thumbnail", attributes: { "aria-hidden": "true" } });
  canvas.width = SIDE;
  canvas.height = SIDE;
  const { left, top, right, bottom } = piece;
  const [w, h] = [(right - left) * width, (bottom - top) * height];
  canvas
    .getContext("2d")!
    .drawImage(canvasOf(mark), left * width, top * height, w, h, 0, 0, SIDE, SIDE);
  return canvas;
}
