// Layout of a head as a matrix, queries down and keys across; fitted, zoomed or panned.

import type { Focus, Matrix } from "../data/filtered_block.ts";
import { type Entry, printed } from "../data/tokens.ts";
import { mix, pixelsOf, type Rgb, type Theme } from "../paint/theme.ts";
import { type Mark, type Raster, rect } from "./scene.ts";

/** Visible part: pixels per cell, and the cell in the upper left corner. */
export type Window = Readonly<{ cell: number; row: number; column: number }>;

interface MatrixLayout {
  readonly width: number;
  readonly height: number;
  readonly left: number;
  readonly top: number;
  readonly rows: number;
  readonly columns: number;
  /** Pixels per cell at which the whole matrix is visible. */
  readonly fit: number;
  /** Height of a cell divided by its width; 1 unless there are many more columns than rows. */
  readonly tall: number;
  /** Whether the widest label fits, so that none is shortened. */
  readonly fits: boolean;
}

const LARGEST = 44;
const LARGEST_FIT = 30;
/** Ratio of the sides above which cells are not square. */
const OBLONG = 4;

export function matrixLayout(
  size: { width: number; height: number },
  rows: number,
  columns: number,
  ems: number,
  stretch = 1,
): MatrixLayout {
  const wanted = Math.max(40, ems * 14 + 18);
  const labels = Math.min(120, wanted, size.width * 0.28);
  const top = labels * 0.8 + 10;
  const room = { width: size.width - labels - 46, height: size.height - top - 10 };
  const across = Math.min(LARGEST_FIT, room.width / Math.max(columns, 1));
  const down = Math.min(LARGEST_FIT, room.height / Math.max(rows, 1));
  const isOblong = Math.max(across / down, down / across) > OBLONG;
  const fit = Math.max(0.1, isOblong ? across : Math.min(across, down));
  const tall = isOblong
    ? Math.max(0.1, down) / fit
    : Math.min(stretch, Math.max(1, Math.min(down, room.height / Math.max(rows, 1)) / fit));
  // A small matrix is centered, but stays near the edge so that zooming keeps room.
  const left = labels + Math.min(90, Math.max(0, room.width - fit * columns) / 2);
  return { ...size, left, top, rows, columns, fit, tall, fits: labels === wanted };
}

export function wholeWindow(layout: MatrixLayout): Window {
  return { cell: layout.fit, row: 0, column: 0 };
}

export function zoomed(
  window: Window,
  layout: MatrixLayout,
  factor: number,
  x = (layout.left + layout.width) / 2,
  y = (layout.top + layout.height) / 2,
): Window {
  const cell = Math.min(LARGEST, Math.max(layout.fit, window.cell * factor));
  const column = window.column + (x - layout.left) / window.cell - (x - layout.left) / cell;
  const down = (y - layout.top) / layout.tall;
  const row = window.row + down / window.cell - down / cell;
  return kept({ cell, row, column }, layout);
}

/** Move the window by pixels. */
export function panned(window: Window, layout: MatrixLayout, x: number, y: number): Window {
  const { cell } = window;
  const row = window.row - y / (cell * layout.tall);
  return kept({ cell, row, column: window.column - x / cell }, layout);
}

export function revealed(
  window: Window,
  layout: MatrixLayout,
  row: number,
  column: number,
): Window {
  const seen = seenCells(window, layout);
  const into = (from: number, count: number, index: number) =>
    index < from ? index : index > from + count - 1 ? index - count + 1 : from;
  const next = {
    cell: window.cell,
    row: into(window.row, Math.floor(seen.rows), row),
    column: into(window.column, Math.floor(seen.columns), column),
  };
  return kept(next, layout);
}

function seenCells(window: Window, layout: MatrixLayout): { rows: number; columns: number } {
  return {
    rows: Math.min(layout.rows, (layout.height - layout.top - 6) / (window.cell * layout.tall)),
    columns: Math.min(layout.columns, (layout.width - layout.left - 6) / window.cell),
  };
}

function kept(window: Window, layout: MatrixLayout): Window {
  const seen = seenCells(window, layout);
  const within = (value: number, most: number) => Math.max(0, Math.min(value, Math.max(0, most)));
  return {
    cell: window.cell,
    row: within(window.row, layout.rows - seen.rows),
    column: within(window.column, layout.columns - seen.columns),
  };
}

export function cellAt(window: Window, layout: MatrixLayout, x: number, y: number): Focus | null {
  if (x < layout.left || y < layout.top) return null;
  const column = Math.floor(window.column + (x - layout.left) / window.cell);
  const row = Math.floor(window.row + (y - layout.top) / (window.cell * layout.tall));
  return row < layout.rows && column < layout.columns ? { row, column } : null;
}

/** Scale of a heat map: the weight of full color, the least weight drawn, cells per pixel. */
export interface HeatScale {
  readonly full?: number;
  readonly above?: number;
  /** Cells along each side of a pixel, which shows the largest of them. */
  readonly pool?: number;
}

export type Heat = Raster & Readonly<{ pool: number }>;

/** Color the weights, one pixel per cell or per square of cells; negative ones in another color. */
export function heatOf(
  matrix: Matrix,
  theme: Theme,
  color: Rgb,
  { full = 1, above = 0, pool = 1 }: HeatScale = {},
  negative = color,
): Heat {
  const { rows, columns, weights } = pool > 1 ? pooled(matrix, pool) : matrix;
  const pixels = pixelsOf(weights.length, (i) => {
    const weight = weights[i];
    if (Number.isNaN(weight)) return theme.rgb.missing;
    const size = Math.abs(weight);
    const share = size < above ? 0 : Math.sqrt(Math.min(1, size / full));
    return mix(theme.rgb.panel, weight < 0 ? negative : color, share);
  });
  return { columns, rows, pixels, pool };
}

/** Largest weight, by size, of each square of cells; missing ones are passed over. */
function pooled({ rows, columns, weights }: Matrix, pool: number): Matrix {
  const [down, across] = [Math.ceil(rows / pool), Math.ceil(columns / pool)];
  const most = new Float32Array(down * across);
  for (let r = 0; r < rows; r++) {
    const start = Math.floor(r / pool) * across;
    for (let c = 0; c < columns; c++) {
      const weight = weights[r * columns + c];
      const i = start + Math.floor(c / pool);
      if (Math.abs(weight) > Math.abs(most[i])) most[i] = weight;
    }
  }
  return { rows: down, columns: across, weights: most };
}

interface MatrixInput {
  readonly heat: Heat;
  readonly rows: readonly Entry[];
  readonly keys: readonly Entry[];
  readonly focus: Focus;
  readonly pinned: Focus;
}

/** Build the marks of the visible part with labels; the view clips them. */
export function matrixMarks(
  input: MatrixInput,
  window: Window,
  layout: MatrixLayout,
  theme: Theme,
): Mark[] {
  const { cell } = window;
  const down = cell * layout.tall;
  const x = layout.left - window.column * cell;
  const y = layout.top - window.row * down;
  const [width, height] = [layout.columns * cell, layout.rows * down];
  const { heat } = input;
  const drawn = {
    width: heat.columns * heat.pool * cell,
    height: heat.rows * heat.pool * down,
  };
  const marks: Mark[] = [{ kind: "image", ...heat, x, y, ...drawn }];
  const { focus, pinned } = input;
  const stroke = (row: number, column: number, thickness: number) => {
    const band = { kind: "frame" as const, color: theme.tone.ink, thickness };
    if (row >= 0) marks.push({ ...band, x, y: y + row * down, width, height: down });
    if (column >= 0) marks.push({ ...band, x: x + column * cell, y, width: cell, height });
  };
  stroke(focus.row, focus.column, 1);
  if (pinned.row >= 0 && pinned.column >= 0) {
    marks.push({
      kind: "frame",
      x: x + pinned.column * cell,
      y: y + pinned.row * down,
      width: cell,
      height: down,
      color: theme.tone.ink,
      thickness: 2,
    });
  }
  // Cells that slid under the labels are covered before the labels are drawn.
  marks.push(rect(0, 0, layout.width, layout.top, theme.tone.paper));
  marks.push(rect(0, 0, layout.left, layout.height, theme.tone.paper));
  const size = Math.min(14, Math.max(9, Math.min(cell, down) * 0.6));
  const strideOf = (pixels: number) => Math.max(1, Math.ceil((size + 1) / pixels));
  const seen = seenCells(window, layout);
  const room = layout.fits ? Infinity : Math.floor((layout.left - 12) / (size * 0.52));
  const text = (entry: Entry, isMarked: boolean) => ({
    kind: "text" as const,
    text: shorten(printed(entry.label), room),
    size,
    serif: true,
    bold: isMarked,
    fill: entry.special && !isMarked ? theme.tone.soft : theme.tone.ink,
  });
  const isShown = (i: number, from: number, count: number, marked: number, stride: number) => {
    if (i === marked) return true;
    const isSeen = i >= Math.floor(from) && i < from + count;
    return isSeen && i % stride === 0 && (marked < 0 || Math.abs(i - marked) >= stride);
  };
  input.rows.forEach((entry, i) => {
    if (!isShown(i, window.row, seen.rows, focus.row, strideOf(down))) return;
    const baseline = y + (i + 0.5) * down + size * 0.35;
    if (baseline < layout.top) return;
    marks.push({ ...text(entry, i === focus.row), x: layout.left - 6, y: baseline, anchor: "end" });
  });
  input.keys.forEach((entry, i) => {
    if (!isShown(i, window.column, seen.columns, focus.column, strideOf(cell))) return;
    const start = x + (i + 0.5) * cell + size * 0.35;
    if (start < layout.left) return;
    const mark = text(entry, i === focus.column);
    marks.push({ ...mark, x: start, y: layout.top - 6, anchor: "start", turn: -60 });
  });
  return marks;
}

/** Build the whole matrix in small, with a frame around the visible part. */
export function minimapMarks(
  heat: Heat,
  window: Window,
  layout: MatrixLayout,
  size: { width: number; height: number },
  theme: Theme,
): Mark[] {
  const seen = seenCells(window, layout);
  const [right, down] = [size.width / layout.columns, size.height / layout.rows];
  return [
    { kind: "image", ...heat, x: 0, y: 0, ...size },
    {
      kind: "frame",
      x: window.column * right + 1,
      y: window.row * down + 1,
      width: seen.columns * right - 2,
      height: seen.rows * down - 2,
      color: theme.tone.ink,
      thickness: 1.5,
    },
  ];
}

export function shorten(text: string, room: number): string {
  const letters = [...text];
  return letters.length <= room ? text : `${letters.slice(0, Math.max(1, room - 1)).join("")}…`;
}
