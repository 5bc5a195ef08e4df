// The current view as a file: scenes beside one another, as SVG or PNG.

import { type ImageMark, type Mark, moved, type Scene } from "../layout/scene.ts";
import { canvasOf } from "../paint/canvas.ts";
import { svgOf } from "../paint/svg.ts";
import { make } from "./element.ts";

const GAP = 24;
const SHARPNESS = 2;

/** Scenes side by side under a title. */
export function sheet(scenes: readonly Scene[], title: string, ink: string): Scene {
  const top = 34;
  const marks: Mark[] = [
    { kind: "text", x: 14, y: 21, text: title, size: 13, anchor: "start", fill: ink, bold: true },
  ];
  let x = 0;
  for (const scene of scenes) {
    marks.push(...scene.marks.map((mark) => moved(mark, x, top)));
    x += scene.width + GAP;
  }
  return {
    width: Math.max(x - GAP, 200),
    height: top + Math.max(...scenes.map((scene) => scene.height)),
    background: scenes[0].background,
    marks,
  };
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
  canvas.width = scene.width * SHARPNESS;
  canvas.height = scene.height * SHARPNESS;
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
