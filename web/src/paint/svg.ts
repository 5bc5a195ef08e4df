// Scenes as SVG text, for export. Needs no DOM: pictures become links through `href`.

import { handlesOf, type ImageMark, type Mark, outerFrame, type Scene } from "../layout/scene.ts";
import { SANS, SERIF } from "./theme.ts";

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

/** Text that XML takes: markup escaped, characters it forbids left out. */
function escapeXml(text: string): string {
  return text
    .replace(/[^\t\n\r\u{20}-\u{d7ff}\u{e000}-\u{fffd}\u{10000}-\u{10ffff}]/gu, "\u{fffd}")
    .replace(/&/g, "&amp;")
    .replace(/</g, "&lt;")
    .replace(/>/g, "&gt;")
    .replace(/"/g, "&quot;");
}
