// Painters of marks: a canvas, and SVG text for export.

import { printed } from "../data/tokens.ts";
import {
  handlesOf,
  type ImageMark,
  type Mark,
  outerFrame,
  type Raster,
  type Scene,
  type TextMark,
} from "../layout/scene.ts";
import { SANS, SERIF } from "./theme.ts";

let ruler: CanvasRenderingContext2D | null = null;

function rulerFor(font: string): CanvasRenderingContext2D {
  ruler ??= document.createElement("canvas").getContext("2d")!;
  ruler.font = font;
  return ruler;
}

export function textWidth(content: string, size: number, isBold = false): number {
  return rulerFor(`${isBold ? "600 " : ""}${size}px ${SANS}`).measureText(content).width;
}

export function fitted(content: string, size: number, width: number): string {
  if (textWidth(content, size) <= width) return content;
  let kept = content;
  while (kept.length > 1 && textWidth(`${kept}…`, size) > width) kept = kept.slice(0, -1);
  return `${kept}…`;
}

/** Width of the widest text, in ems. */
export function widestEms(texts: Iterable<string>, serif = false): number {
  const context = rulerFor(`100px ${serif ? SERIF : SANS}`);
  return Math.max(0, ...Array.from(texts, (text) => context.measureText(text).width / 100));
}

/** Width of the widest label, in ems. */
export function labelEms(entries: readonly { readonly label: string }[]): number {
  const labels = entries.map(({ label }) => printed(label));
  return widestEms(labels, true);
}

/** Resize and clear a canvas of `width × height` CSS pixels at the screen's resolution. */
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

export function paint(context: CanvasRenderingContext2D, marks: readonly Mark[]): void {
  for (const mark of marks) {
    switch (mark.kind) {
      case "curve":
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
      case "rect":
        context.fillStyle = mark.fill;
        context.fillRect(mark.x, mark.y, mark.width, mark.height);
        break;
      case "frame": {
        const { x, y, width, height } = outerFrame(mark);
        context.strokeStyle = mark.color;
        context.lineWidth = mark.thickness;
        context.strokeRect(x, y, width, height);
        break;
      }
      case "text":
        paintText(context, mark);
        break;
      case "image":
        context.imageSmoothingEnabled = mark.smooth ?? false;
        context.drawImage(canvasOf(mark), mark.x, mark.y, mark.width, mark.height);
        break;
    }
  }
}

function paintText(context: CanvasRenderingContext2D, mark: TextMark): void {
  context.font = `${mark.bold ? "600 " : ""}${mark.size}px ${mark.serif ? SERIF : SANS}`;
  context.fillStyle = mark.fill;
  context.textAlign = mark.anchor === "middle" ? "center" : mark.anchor;
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

const drawn = new WeakMap<Raster["pixels"], HTMLCanvasElement>();

/** Canvas with these pixels, cached. */
export function canvasOf({ columns, rows, pixels }: Raster): HTMLCanvasElement {
  const cached = drawn.get(pixels);
  if (cached) return cached;
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  canvas.getContext("2d")!.putImageData(new ImageData(pixels, columns, rows), 0, 0);
  drawn.set(pixels, canvas);
  return canvas;
}

export function svgOf(scene: Scene, href: (mark: ImageMark) => string): string {
  const size = `width="${round(scene.width)}" height="${round(scene.height)}"`;
  const box = `viewBox="0 0 ${round(scene.width)} ${round(scene.height)}"`;
  const body = scene.marks.map((mark) => markSvg(mark, href)).join("\n");
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} ${box} font-family="${escapeXml(SANS)}">
<rect width="100%" height="100%" fill="${scene.background}"/>
${body}
</svg>
`;
}

function markSvg(mark: Mark, href: (mark: ImageMark) => string): string {
  switch (mark.kind) {
    case "curve": {
      const [hx1, hy1, hx2, hy2] = handlesOf(mark).map(round);
      const dash = mark.dashed ? ' stroke-dasharray="6 4"' : "";
      return (
        `<path d="M${round(mark.x1)} ${round(mark.y1)}C${hx1} ${hy1} ${hx2} ${hy2} ` +
        `${round(mark.x2)} ${round(mark.y2)}" fill="none" stroke="${mark.color}" ` +
        `stroke-opacity="${round(mark.opacity)}" stroke-width="${round(mark.width)}"${dash}/>`
      );
    }
    case "rect":
      return (
        `<rect x="${round(mark.x)}" y="${round(mark.y)}" width="${round(mark.width)}" ` +
        `height="${round(mark.height)}" fill="${mark.fill}"/>`
      );
    case "frame": {
      const { x, y, width, height } = outerFrame(mark);
      return (
        `<rect x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}" ` +
        `fill="none" stroke="${mark.color}" stroke-width="${mark.thickness}"/>`
      );
    }
    case "text": {
      const bold = mark.bold ? ' font-weight="600"' : "";
      const face = mark.serif ? ` font-family="${escapeXml(SERIF)}"` : "";
      const turn = mark.turn
        ? ` transform="rotate(${mark.turn} ${round(mark.x)} ${round(mark.y)})"`
        : "";
      return (
        `<text x="${round(mark.x)}" y="${round(mark.y)}" font-size="${mark.size}" ` +
        `text-anchor="${mark.anchor}" fill="${mark.fill}" xml:space="preserve"${bold}${face}${turn}>` +
        `${escapeXml(mark.text)}</text>`
      );
    }
    case "image":
      return (
        `<image x="${round(mark.x)}" y="${round(mark.y)}" width="${round(mark.width)}" ` +
        `height="${round(mark.height)}" preserveAspectRatio="none" ` +
        `style="image-rendering:${mark.smooth ? "auto" : "pixelated"}" href="${href(mark)}"/>`
      );
  }
}

function round(value: number): string {
  return String(Math.round(value * 100) / 100);
}

/** Escape a text for XML; forbidden characters are replaced. */
export function escapeXml(text: string): string {
  return text
    .replace(/[^\t\n\r\u{20}-\u{d7ff}\u{e000}-\u{fffd}\u{10000}-\u{10ffff}]/gu, "\u{fffd}")
    .replace(/&/g, "&amp;")
    .replace(/</g, "&lt;")
    .replace(/>/g, "&gt;")
    .replace(/"/g, "&quot;");
}
