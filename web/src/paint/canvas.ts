// Scenes on a canvas.

import {
  handlesOf,
  type ImageMark,
  outerFrame,
  type Scene,
  type TextMark,
} from "../layout/scene.ts";
import { SANS, SERIF } from "./theme.ts";

function fontOf(mark: Pick<TextMark, "size" | "bold" | "serif">): string {
  return `${mark.bold ? "600 " : ""}${mark.size}px ${mark.serif ? SERIF : SANS}`;
}

let ruler: CanvasRenderingContext2D | null = null;

/** The widest of some texts, in ems. */
export function widestEms(texts: Iterable<string>, serif = false): number {
  ruler ??= document.createElement("canvas").getContext("2d")!;
  ruler.font = `100px ${serif ? SERIF : SANS}`;
  let widest = 0;
  for (const text of texts) widest = Math.max(widest, ruler.measureText(text).width / 100);
  return widest;
}

/** Give a canvas `width × height` CSS pixels at the screen's resolution, cleared. */
export function prepare(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
): CanvasRenderingContext2D {
  const ratio = Math.min(globalThis.devicePixelRatio || 1, 2);
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d")!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** Part of the ink that a line keeps when one of its ends is out of sight. */
const HALF_SEEN = 0.25;

/** Draw marks; those wholly above or below the visible band are skipped, as are lines that only pass through. */
export function paint(
  context: CanvasRenderingContext2D,
  scene: Pick<Scene, "marks">,
  band: { top: number; bottom: number },
): void {
  for (const mark of scene.marks) {
    switch (mark.kind) {
      case "line": {
        const isSeen = (y: number) => y >= band.top && y <= band.bottom;
        const ends = Number(isSeen(mark.y1)) + Number(isSeen(mark.y2));
        if (ends === 0) break;
        context.globalAlpha = ends === 2 ? mark.opacity : mark.opacity * HALF_SEEN;
        context.strokeStyle = mark.color;
        context.lineWidth = mark.width;
        context.beginPath();
        context.moveTo(mark.x1, mark.y1);
        context.lineTo(mark.x2, mark.y2);
        context.stroke();
        context.globalAlpha = 1;
        break;
      }
      case "curve": {
        const [low, high] = mark.y1 < mark.y2 ? [mark.y1, mark.y2] : [mark.y2, mark.y1];
        if (high < band.top || low - (mark.rise ?? 0) > band.bottom) break;
        context.globalAlpha = mark.opacity;
        context.strokeStyle = mark.color;
        context.lineWidth = mark.width;
        context.setLineDash(mark.dashed ? [6, 4] : []);
        context.beginPath();
        context.moveTo(mark.x1, mark.y1);
        context.bezierCurveTo(...handlesOf(mark), mark.x2, mark.y2);
        context.stroke();
        context.setLineDash([]);
        context.globalAlpha = 1;
        break;
      }
      case "rect":
        if (mark.y + mark.height < band.top || mark.y > band.bottom) break;
        context.fillStyle = mark.fill;
        context.fillRect(mark.x, mark.y, mark.width, mark.height);
        break;
      case "frame": {
        if (mark.y + mark.height < band.top || mark.y > band.bottom) break;
        const { x, y, width, height } = outerFrame(mark);
        context.strokeStyle = mark.color;
        context.lineWidth = mark.thickness;
        context.strokeRect(x, y, width, height);
        break;
      }
      case "text":
        if (!mark.turn && (mark.y + mark.size < band.top || mark.y - mark.size > band.bottom))
          break;
        paintText(context, mark);
        break;
      case "image":
        if (mark.y + mark.height < band.top || mark.y > band.bottom) break;
        context.imageSmoothingEnabled = mark.smooth ?? false;
        context.drawImage(canvasOf(mark), mark.x, mark.y, mark.width, mark.height);
        break;
    }
  }
}

function paintText(context: CanvasRenderingContext2D, mark: TextMark): void {
  context.font = fontOf(mark);
  context.fillStyle = mark.fill;
  context.textAlign = mark.anchor === "middle" ? "center" : mark.anchor;
  context.textBaseline = "alphabetic";
  if (!mark.turn) {
    context.fillText(mark.text, mark.x, mark.y);
    return;
  }
  context.save();
  context.translate(mark.x, mark.y);
  context.rotate((mark.turn * Math.PI) / 180);
  context.fillText(mark.text, 0, 0);
  context.restore();
}

const drawn = new WeakMap<ImageMark, HTMLCanvasElement>();

export function canvasOf(mark: ImageMark): HTMLCanvasElement {
  const known = drawn.get(mark);
  if (known) return known;
  const canvas = document.createElement("canvas");
  canvas.width = mark.columns;
  canvas.height = mark.rows;
  const image = new ImageData(mark.pixels, mark.columns, mark.rows);
  canvas.getContext("2d")!.putImageData(image, 0, 0);
  drawn.set(mark, canvas);
  return canvas;
}
