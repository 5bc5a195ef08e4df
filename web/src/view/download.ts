// Files from the screen: scenes as SVG or PNG, tables as CSV.

import { type ImageMark, type Mark, moved, type Scene, type TextMark } from "../layout/scene.ts";
import { canvasOf, svgOf, widestEms } from "../paint/painter.ts";
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

export function svgFile(scene: Scene): Blob {
  const href = (mark: ImageMark) => canvasOf(mark).toDataURL("image/png");
  return new Blob([svgOf(scene, href)], { type: "image/svg+xml" });
}

export async function pngFile(scene: Scene): Promise<Blob> {
  const text = await svgFile(scene).text();
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
