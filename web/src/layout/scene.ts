// Marks with positions and colors, computed before anything is drawn.

export interface LineMark {
  readonly kind: "line";
  readonly x1: number;
  readonly y1: number;
  readonly x2: number;
  readonly y2: number;
  readonly color: string;
  readonly opacity: number;
  readonly width: number;
}

export interface RectMark {
  readonly kind: "rect";
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
  readonly fill: string;
}

/** The outline of a rectangle, drawn around it. */
export interface FrameMark {
  readonly kind: "frame";
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
  readonly color: string;
  readonly thickness: number;
}

export interface TextMark {
  readonly kind: "text";
  readonly x: number;
  readonly y: number;
  readonly text: string;
  readonly size: number;
  readonly anchor: "start" | "middle" | "end";
  readonly fill: string;
  readonly bold?: boolean;
  /** Degrees about (x, y). */
  readonly turn?: number;
}

/** A picture as pixels; painters turn it into what they need. */
export interface ImageMark {
  readonly kind: "image";
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
  readonly columns: number;
  readonly rows: number;
  /** RGBA, row after row. */
  readonly pixels: Uint8ClampedArray<ArrayBuffer>;
  readonly smooth?: boolean;
}

export type Mark = LineMark | RectMark | FrameMark | TextMark | ImageMark;

/** Where the middle of a frame's line runs. */
export function outerFrame({ x, y, width, height, thickness }: FrameMark) {
  const half = thickness / 2;
  return { x: x - half, y: y - half, width: width + thickness, height: height + thickness };
}

/** A mark somewhere else. */
export function moved(mark: Mark, x: number, y: number): Mark {
  if (mark.kind === "line") {
    return { ...mark, x1: mark.x1 + x, x2: mark.x2 + x, y1: mark.y1 + y, y2: mark.y2 + y };
  }
  return { ...mark, x: mark.x + x, y: mark.y + y };
}

export interface Scene {
  readonly width: number;
  readonly height: number;
  readonly background: string;
  readonly marks: readonly Mark[];
}

/** Where a view has nothing to draw. */
export function emptyScene(background: string): Scene {
  return { width: 200, height: 40, background, marks: [] };
}
