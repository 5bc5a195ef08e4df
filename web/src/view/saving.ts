// What is on the screen as a file: scenes beside and below one another, as SVG or PNG.

import { type ImageMark, type Mark, moved, type Scene, type TextMark } from "../layout/scene.ts";
import { canvasOf, widestEms } from "../paint/canvas.ts";
import { svgOf } from "../paint/svg.ts";
import type { Theme } from "../paint/theme.ts";
import { make } from "./element.ts";

const GAP = 24;
const PAD = 14;
const SHARPNESS = 2;
/** Pixels along one side of a picture that every browser can make. */
const LONGEST = 16_000;

/** A scene with what its caption says. */
export interface Captioned {
  readonly scene: Scene;
  readonly caption: string;
}

/** Scenes that stand side by side under a title of their own; an empty title takes no room. */
export interface Section {
  readonly title: string;
  readonly scenes: readonly Captioned[];
}

/** Sections one below another, under one title. */
export function sheet(title: string, sections: readonly Section[], theme: Theme): Scene {
  const marks: Mark[] = [];
  let [right, y] = [200, 0];
  const write = (x: number, text: string, style: Pick<TextMark, "size" | "fill" | "bold">) => {
    marks.push({
      kind: "text",
      x: x + PAD,
      y: y + style.size + 8,
      text,
      anchor: "start",
      ...style,
    });
    right = Math.max(
      right,
      x + PAD + widestEms([text]) * style.size * (style.bold ? 1.1 : 1) + PAD,
    );
  };
  write(0, title, { size: 13, fill: theme.tone.ink, bold: true });
  y += 34;
  for (const section of sections) {
    if (section.title) {
      write(0, section.title, { size: 12, fill: theme.tone.ink, bold: true });
      y += 26;
    }
    let x = 0;
    const hasCaptions = section.scenes.some(({ caption }) => caption);
    for (const { scene, caption } of section.scenes) {
      if (caption) write(x, caption, { size: 11, fill: theme.tone.soft });
      const top = y + (hasCaptions ? 24 : 0);
      for (const mark of scene.marks) marks.push(moved(mark, x, top));
      right = Math.max(right, x + scene.width);
      x += scene.width + GAP;
    }
    const tallest = Math.max(0, ...section.scenes.map(({ scene }) => scene.height));
    y += (hasCaptions ? 24 : 0) + tallest + (section === sections.at(-1) ? 0 : GAP);
  }
  return { width: Math.ceil(right), height: Math.ceil(y), background: theme.tone.panel, marks };
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
  const canvas = make("canvas");
  const sharpness = Math.min(SHARPNESS, LONGEST / Math.max(scene.width, scene.height));
  canvas.width = Math.round(scene.width * sharpness);
  canvas.height = Math.round(scene.height * sharpness);
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no PNG"))), "image/png");
  });
}

export function download(blob: Blob, name: string): void {
  const link = make("a", { attributes: { download: name } });
  link.href = URL.createObjectURL(blob);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
