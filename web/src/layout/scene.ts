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

export type Mark = LineMark | RectMark | TextMark | ImageMark;

export interface Scene {
  readonly width: number;
  readonly height: number;
  readonly background: string;
  readonly marks: readonly Mark[];
}
