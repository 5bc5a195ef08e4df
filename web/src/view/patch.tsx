// The patch of a picture, as small as a word.

import { useLayoutEffect, useRef } from "preact/hooks";
import type { Media, Piece } from "../data/media.ts";
import { canvasOf } from "../paint/canvas.ts";

const SIDE = 28;

/** A canvas with a patch's pixels; nothing for what is no patch of a picture. */
export function PatchThumbnail({ piece, media }: { piece: Piece | null; media: Media }) {
  const ref = useRef<HTMLCanvasElement>(null);
  const patch = piece?.kind === "patch" ? piece : null;
  const picture = patch ? media.pictures[patch.image] : undefined;
  useLayoutEffect(() => {
    const context = ref.current?.getContext("2d");
    if (!context || !patch || !picture) return;
    const { width, height, pixels } = picture;
    const { left, top, right, bottom } = patch;
    const [w, h] = [(right - left) * width, (bottom - top) * height];
    const whole = canvasOf({ columns: width, rows: height, pixels });
    context.drawImage(whole, left * width, top * height, w, h, 0, 0, SIDE, SIDE);
  }, [patch, picture]);
  if (!picture) return null;
  return <canvas class="thumbnail" width={SIDE} height={SIDE} ref={ref} />;
}
