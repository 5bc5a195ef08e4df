// Marks of a scene: positions and colors, computed before drawing.

export type Box = Readonly<{ x: number; y: number; width: number; height: number }>;

export interface CurveMark {
  readonly kind: "curve";
  readonly x1: number;
  readonly y1: number;
  readonly x2: number;
  readonly y2: number;
  readonly color: string;
  readonly opacity: number;
  readonly width: number;
  readonly dashed?: boolean;
}

type RectMark = Box & Readonly<{ kind: "rect"; fill: string }>;

export function rect(x: number, y: number, width: number, height: number, fill: string): RectMark {
  return { kind: "rect", x, y, width, height, fill };
}

type FrameMark = Box & Readonly<{ kind: "frame"; color: string; thickness: number }>;

export interface TextMark {
  readonly kind: "text";
  readonly x: number;
  readonly y: number;
  readonly text: string;
  readonly size: number;
  readonly anchor: "start" | "middle" | "end";
  readonly fill: string;
  readonly bold?: boolean;
  readonly serif?: boolean;
  readonly turn?: number;
}

export interface Raster {
  readonly columns: number;
  readonly rows: number;
  /** RGBA pixels, row by row. */
  readonly pixels: Uint8ClampedArray<ArrayBuffer>;
}

export type ImageMark = Box & Raster & Readonly<{ kind: "image"; smooth?: boolean }>;

export type Mark = CurveMark | RectMark | FrameMark | TextMark | ImageMark;

export function outerFrame({ x, y, width, height, thickness }: FrameMark): Box {
  const half = thickness / 2;
  return { x: x - half, y: y - half, width: width + thickness, height: height + thickness };
}

export function moved(mark: Mark, x: number, y: number): Mark {
  if (mark.kind === "curve") {
    return { ...mark, x1: mark.x1 + x, x2: mark.x2 + x, y1: mark.y1 + y, y2: mark.y2 + y };
  }
  return { ...mark, x: mark.x + x, y: mark.y + y };
}

export function handlesOf({ x1, y1, x2, y2 }: CurveMark): [number, number, number, number] {
  const middle = (x1 + x2) / 2;
  return [middle, y1, middle, y2];
}

export interface Scene {
  readonly width: number;
  readonly height: number;
  readonly background: string;
  readonly marks: readonly Mark[];
}
