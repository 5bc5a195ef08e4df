// The head view as a matrix: queries down, keys across.

import { type Entry, printed } from "../data/axis.ts";
import type { Matrix } from "../data/lens.ts";
import type { Rgb } from "../paint/color.ts";
import { mix } from "../paint/color.ts";
import type { Theme } from "../paint/theme.ts";
import type { ImageMark, Mark } from "./scene.ts";

export interface MatrixLayout {
  readonly cell: number;
  readonly fontSize: number;
  /** Where the cells begin: right of the query labels, below the key labels. */
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
  /** Characters that fit a label. */
  readonly room: number;
}

const SMALLEST = 5;
const LARGEST = 30;

export function matrixLayout(
  size: { width: number; height: number },
  rows: number,
  columns: number,
  ems: number,
): MatrixLayout {
  const size12 = Math.max(rows, columns) <= 50;
  const labels = Math.min(130, Math.max(36, ems * (size12 ? 12 : 10) + 14));
  const fit = Math.min(
    (size.width - labels - 24) / Math.max(columns, 1),
    (size.height - labels - 16) / Math.max(rows, 1),
  );
  const cell = Math.max(SMALLEST, Math.min(LARGEST, Math.floor(fit)));
  return {
    cell,
    fontSize: cell >= 15 ? 12 : cell >= 11 ? 10 : 9,
    left: labels + 6,
    top: labels,
    width: labels + columns * cell + 24,
    height: labels + rows * cell + 16,
    room: labels < 130 ? Number.POSITIVE_INFINITY : 17,
  };
}

/** The weights as a picture, one pixel per cell. */
export function heatMark(
  matrix: Matrix,
  layout: MatrixLayout,
  theme: Theme,
  signed: boolean,
): ImageMark {
  const { rows, columns, weights } = matrix;
  const pixels = new Uint8ClampedArray(rows * columns * 4);
  for (let i = 0; i < weights.length; i++) {
    const [red, green, blue] = colorOf(weights[i], theme, signed);
    pixels[4 * i] = red;
    pixels[4 * i + 1] = green;
    pixels[4 * i + 2] = blue;
    pixels[4 * i + 3] = 255;
  }
  const { left: x, top: y, cell } = layout;
  return { kind: "image", x, y, width: columns * cell, height: rows * cell, columns, rows, pixels };
}

export function colorOf(weight: number, theme: Theme, signed: boolean): Rgb {
  if (Number.isNaN(weight)) return theme.rgb.missing;
  const share = Math.sqrt(Math.min(1, Math.abs(weight)));
  if (!signed) return theme.heat[Math.round(share * 255)];
  return mix(theme.rgb.panel, weight >= 0 ? theme.rgb.positive : theme.rgb.negative, share);
}

/** Every label, or every second, third … where cells are too small for all of them. */
export function matrixLabels(
  rows: readonly Entry[],
  columns: readonly Entry[],
  layout: MatrixLayout,
  theme: Theme,
): Mark[] {
  const every = Math.max(1, Math.ceil((layout.fontSize + 1) / layout.cell));
  const marks: Mark[] = [];
  const style = (entry: Entry) => (entry.special ? theme.tone.soft : theme.tone.ink);
  const shift = layout.fontSize * 0.35;
  rows.forEach((entry, row) => {
    if (row % every !== 0) return;
    marks.push({
      kind: "text",
      x: layout.left - 6,
      y: layout.top + (row + 0.5) * layout.cell + shift,
      text: shorten(printed(entry.label), layout.room),
      size: layout.fontSize,
      anchor: "end",
      fill: style(entry),
    });
  });
  columns.forEach((entry, column) => {
    if (column % every !== 0) return;
    marks.push({
      kind: "text",
      x: layout.left + (column + 0.5) * layout.cell + shift,
      y: layout.top - 6,
      text: shorten(printed(entry.label), layout.room),
      size: layout.fontSize,
      anchor: "start",
      fill: style(entry),
      turn: -90,
    });
  });
  return marks;
}

/** At most `room` characters, counted as people see them. */
export function shorten(text: string, room: number): string {
  const signs = [...text];
  return signs.length <= room ? text : `${signs.slice(0, Math.max(1, room - 1)).join("")}…`;
}

export function cellAt(
  layout: MatrixLayout,
  x: number,
  y: number,
  rows: number,
  columns: number,
): { row: number; column: number } | null {
  const row = Math.floor((y - layout.top) / layout.cell);
  const column = Math.floor((x - layout.left) / layout.cell);
  return row >= 0 && row < rows && column >= 0 && column < columns ? { row, column } : null;
}
