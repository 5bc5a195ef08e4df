// Files from the screen: scenes as SVG or PNG, tables as CSV.

import { type ImageMark, type Mark, moved, type Scene, type TextMark } from "../layout/scene.ts";
import { canvasOf, escapeXml, svgOf, widestEms } from "../paint/painter.ts";
import type { Theme } from "../paint/theme.ts";

const GAP = 24;
const PAD = 14;
const SHARPNESS = 2;
/** Maximum side of a canvas in pixels that every browser supports. */
const LONGEST = 16_000;

export type Drawn = Omit<Scene, "background">;

type Captioned = Readonly<{ scene: Drawn; caption: string }>;

/** Place scenes side by side, each under its caption, all under one title. */
export function sheet(title: string, scenes: readonly Captioned[], theme: Theme): Scene {
  const marks: Mark[] = [];
  let right = 200;
  const write = (
    x: number,
    y: number,
    text: string,
    style: Pick<TextMark, "size" | "fill" | "bold">,
  ) => {
    marks.push({ kind: "text", x: x + PAD, y, text, anchor: "start", ...style });
    const width = widestEms([text]) * style.size * (style.bold ? 1.1 : 1);
    right = Math.max(right, x + PAD + width + PAD);
  };
  write(0, 21, title, { size: 13, fill: theme.tone.ink, bold: true });
  const top = scenes.some(({ caption }) => caption) ? 58 : 34;
  let x = 0;
  for (const { scene, caption } of scenes) {
    if (caption) write(x, 53, caption, { size: 11, fill: theme.tone.soft });
    for (const mark of scene.marks) marks.push(moved(mark, x, top));
    right = Math.max(right, x + scene.width);
    x += scene.width + GAP;
  }
  const height = top + Math.max(0, ...scenes.map(({ scene }) => scene.height));
  const size = { width: Math.ceil(right), height: Math.ceil(height) };
  return { ...size, background: theme.tone.panel, marks };
}

export function svgFile(scene: Scene): Drawing {
  const href = (mark: ImageMark) => canvasOf(mark).toDataURL("image/png");
  const file = new Blob([svgOf(scene, href)], { type: "image/svg+xml" });
  return { width: scene.width, height: scene.height, file };
}

const STYLED =
  "fill,stroke,stroke-width,stroke-opacity,stroke-dasharray,opacity,font,text-anchor,paint-order";

/** Copy a drawing of the page with its styles, under a title. */
export function copyOf(drawing: SVGSVGElement, title: string, theme: Theme): Drawing {
  const copy = drawing.cloneNode(true) as SVGSVGElement;
  const own = [...drawing.querySelectorAll("*")];
  [...copy.querySelectorAll<SVGElement>("*")].forEach((element, i) => {
    const style = getComputedStyle(own[i]);
    for (const name of STYLED.split(",")) {
      element.style.setProperty(name, style.getPropertyValue(name));
    }
  });
  const { width, height } = drawing.getBoundingClientRect();
  const text = `<text x="12" y="20" font-size="13" font-weight="600" fill="${theme.tone.ink}">${escapeXml(title)}</text>`;
  const body = `<rect width="100%" height="100%" fill="${theme.tone.panel}"/>${text}`;
  const size = `width="${width}" height="${height + 30}"`;
  const parts = `<g transform="translate(0 30)">${new XMLSerializer().serializeToString(copy)}</g>`;
  const file = `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="sans-serif">${body}${parts}</svg>`;
  return { width, height: height + 30, file: new Blob([file], { type: "image/svg+xml" }) };
}

export type Drawing = Readonly<{ width: number; height: number; file: Blob }>;

export async function pngFile(scene: Drawing): Promise<Blob> {
  const text = await scene.file.text();
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  const sharpness = Math.min(SHARPNESS, LONGEST / Math.max(scene.width, scene.height));
  canvas.width = Math.round(scene.width * sharpness);
  canvas.height = Math.round(scene.height * sharpness);
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no PNG"))), "image/png");
  });
}

export function download(blob: Blob, name: string): void {
  const link = document.createElement("a");
  Object.assign(link, { download: name, href: URL.createObjectURL(blob) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export type Row = readonly (string | number | null)[];

export function csvText(rows: readonly Row[], end = "\r\n"): string {
  const field = (value: Row[number]) => {
    const text = String(value ?? "");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(field).join(",") + end).join("");
}
