// Grid of all heads: cell sizes, and a thumbnail of each head.

import type { HeadIndex } from "../data/effects.ts";
import { type Filter, LINES_LIMIT } from "../data/filtered_block.ts";
import { THUMB_SIDE } from "../data/head_numbers.ts";
import type { Block, Tokens } from "../data/trace.ts";
import { mix, pixelsOf, type Rgb } from "../paint/theme.ts";
import type { ImageMark } from "./scene.ts";

export interface Grid {
  readonly cellWidth: number;
  readonly cellHeight: number;
  /** Margins for layer numbers, and for head numbers and brackets. */
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
  /** Heads in a row. */
  readonly across: number;
  readonly label: "name" | "sign" | "side" | "none" | "list";
}

export const GAP = 2;
const NAME = 13;
/** Width of a role's symbol beside a tile. */
const SIGN = 13;
const LIST = { width: 92, height: 44 } as const;

export function gridOf(
  room: { width: number; height: number },
  layers: number,
  heads: number,
  isGrouped: boolean,
  { isTouched = false, hasNames = true } = {},
): Grid {
  const left = 32;
  const top = 18 + (isGrouped ? 12 : 0);
  const pitch = Math.min(60, Math.max(14, Math.floor((room.width - left - 10) / heads)));
  const free = Math.floor((room.height - top - 6) / layers) - GAP;
  const cellHeight = Math.min(84, Math.max(isTouched ? 20 : 5, free));
  const cellWidth = pitch - GAP;
  const isTall = cellHeight >= 34;
  return {
    cellWidth,
    cellHeight,
    left,
    top,
    width: left + heads * pitch,
    height: top + layers * (cellHeight + GAP),
    across: heads,
    label: !hasNames
      ? "none"
      : isTall
        ? cellWidth >= 28
          ? "name"
          : "sign"
        : cellWidth >= 24
          ? "side"
          : "none",
  };
}

/** Grid of sorted heads: tiles that have room for a name and a number. */
export function listOf(room: { width: number }, count: number): Grid {
  const across = Math.max(2, Math.floor((room.width - 14) / (LIST.width + GAP)));
  const cellWidth = Math.floor((room.width - 14) / across) - GAP;
  const [left, top] = [6, 2];
  const height = top + Math.ceil(count / across) * (LIST.height + GAP);
  const width = left + across * (cellWidth + GAP);
  return { cellWidth, cellHeight: LIST.height, left, top, width, height, across, label: "list" };
}

/** Width of the pane of all heads that gives thumbnails a readable size. */
export function gridWidth(width: number, heads: number): number {
  const wanted = Math.max(width * 0.29, Math.min(58 + heads * 16, width * 0.4));
  return Math.round(Math.max(width > 1100 ? 340 : 268, Math.min(wanted, 58 + heads * 60)));
}

export function placeOf(grid: Grid, i: number): { x: number; y: number } {
  return {
    x: grid.left + (i % grid.across) * (grid.cellWidth + GAP),
    y: grid.top + Math.floor(i / grid.across) * (grid.cellHeight + GAP),
  };
}

export type CellLook = Readonly<{ paper: Rgb; ink: Rgb; hasSign?: boolean }>;

/** Weights of one row for every head; null for a head that was not unpacked. */
export type RowOf = (layerIndex: number, head: number) => ArrayLike<number> | null;

/** Rows of a word from unpacked layers. Null for a long text, or while layers are unpacked. */
export function rowsOf(block: Block, query: number | null): RowOf | null {
  const [queries, keys] = [block.queryTokens.texts.length, block.keyTokens.texts.length];
  if (query === null || Math.max(queries, keys) > LINES_LIMIT) return null;
  const planes = block.planes.map((lazy) => lazy.value);
  if (planes.some((plane) => plane === null)) return null;
  return (layerIndex, head) => planes[layerIndex]!.row(head, query);
}

/** Weight from which a bar is drawn. */
const MIN_BAR = 0.05;

/** Draw a row as bars in the order of the text; sinks in gray. */
export function drawBars(
  row: ArrayLike<number>,
  isSink: (key: number) => boolean,
  on: Canvas,
  tallest = 0.94,
): void {
  const { width, height, ink } = on;
  ink.fill(0);
  const count = row.length;
  for (let key = 0; key < count; key++) {
    const weight = row[key];
    if (!(weight >= MIN_BAR)) continue;
    const from = Math.floor((key * width) / count);
    const gap = width / count >= 4 ? 1 : 0;
    const to = Math.max(from + 1, Math.floor(((key + 1) * width) / count) - gap);
    const top = height - Math.max(1, Math.round(height * tallest * Math.min(1, weight) ** 0.7));
    const strength = isSink(key) ? 0.4 : 1;
    for (let y = Math.max(0, top); y < height; y++) {
      for (let x = from; x < Math.min(to, width); x++) {
        ink[y * width + x] = Math.max(ink[y * width + x], strength);
      }
    }
  }
}

/** Draw the thumbnail of each head at its place: the bars of a word, or the whole head. */
export function gridPictures(
  block: Block,
  grid: Grid,
  filter: Filter,
  ratio: number,
  spots: readonly HeadIndex[],
  look: (layerIndex: number, head: number) => CellLook,
  rowOf: RowOf | null = null,
): ImageMark[] {
  const thumbnail = thumbnailFilter(block, filter);
  const [rows, columns] = [thumbnail.rows.length, thumbnail.columns.length];
  const inner =
    grid.label === "name" || grid.label === "sign" ? grid.cellHeight - NAME : grid.cellHeight;
  const height = Math.round(inner * ratio);
  const marks: ImageMark[] = [];
  const isSink = (key: number) => key === 0 || block.keyTokens.special[key];
  spots.forEach(({ layerIndex, head }, i) => {
    if (!block.has(layerIndex, head)) return;
    const { paper, ink, hasSign } = look(layerIndex, head);
    const across = grid.cellWidth - (hasSign && grid.label === "side" ? SIGN : 0);
    const width = Math.round(across * ratio);
    const canvas: Canvas = { width, height, ink: new Float32Array(width * height) };
    const row = rowOf?.(layerIndex, head);
    if (row) drawBars(row, isSink, canvas, grid.label === "list" ? 0.6 : 0.94);
    else {
      const weights = thumbnailWeights(block, layerIndex, head, thumbnail);
      (thumbnail.isLines ? drawLines : drawHeat)(weights, rows, columns, canvas);
    }
    marks.push({
      kind: "image",
      ...placeOf(grid, i),
      width: across,
      height: inner,
      columns: width,
      rows: height,
      pixels: colored(canvas, paper, ink),
      smooth: !row,
    });
  });
  return marks;
}

const FAINTEST = 0.03;

/** Rows and columns of a thumbnail that the filter keeps. */
interface ThumbnailFilter {
  readonly rows: readonly number[];
  readonly columns: readonly number[];
  keeps(row: number, column: number): boolean;
  readonly above: number;
  readonly isLines: boolean;
}

export function thumbnailFilter(block: Block, filter: Filter): ThumbnailFilter {
  const [queries, keys] = [block.queryTokens, block.keyTokens];
  const [rows, columns] = [queries, keys].map(({ texts }) => Math.min(texts.length, THUMB_SIDE));
  const queryBins = binsOf(queries, rows);
  const other = binsOf(keys, columns);
  const shown = (bin: Bin) => filter.specials !== "hidden" || !bin.special;
  const isPair = block.name !== "cross";
  return {
    rows: queryBins.flatMap((bin, i) => (shown(bin) ? i : [])),
    columns: other.flatMap((bin, i) => (shown(bin) ? i : [])),
    keeps(row, column) {
      if (!isPair || filter.pairs === "all") return true;
      const [from, to] = [queryBins[row].segment, other[column].segment];
      if (filter.pairs === "within") return from === to;
      return filter.pairs === "ab" ? from === 0 && to === 1 : from === 1 && to === 0;
    },
    above: Math.max(FAINTEST, filter.above),
    isLines: Math.max(queries.texts.length, keys.texts.length) <= LINES_LIMIT,
  };
}

type Bin = Readonly<{ special: boolean; segment: number }>;

/** Token class of each cell: special if all its tokens are; segment of the first. */
function binsOf(tokens: Tokens, count: number): Bin[] {
  return Array.from({ length: count }, (_, i) => {
    const [from, to] = [i, i + 1].map((edge) => Math.floor((edge * tokens.texts.length) / count));
    const special = tokens.special.slice(from, to).every(Boolean);
    return { special, segment: tokens.segments[from] };
  });
}

/** Weights of one head in the cells that the filter keeps. */
export function thumbnailWeights(
  block: Block,
  layerIndex: number,
  head: number,
  thumbnail: ThumbnailFilter,
): Float32Array {
  const cells = block.thumb(layerIndex, head);
  const width = Math.min(block.keyTokens.texts.length, THUMB_SIDE);
  const weights = new Float32Array(thumbnail.rows.length * thumbnail.columns.length);
  if (!cells) return weights;
  thumbnail.rows.forEach((row, r) => {
    thumbnail.columns.forEach((column, c) => {
      const weight = cells[row * width + column];
      if (weight >= thumbnail.above && thumbnail.keeps(row, column)) {
        weights[r * thumbnail.columns.length + c] = weight;
      }
    });
  });
  return weights;
}

export type Canvas = Readonly<{ width: number; height: number; ink: Float32Array }>;

/** Draw weights as lines from the left to the right edge: ink from 0 to 1 per pixel. */
export function drawLines(weights: Float32Array, rows: number, columns: number, on: Canvas): void {
  const { width, height, ink } = on;
  ink.fill(0);
  const unit = height / Math.max(rows, columns, 1);
  // Crowded lines get less ink each, so that the pattern stays visible.
  const density = Math.min(1, Math.max(0.3, unit / 1.6));
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const weight = weights[row * columns + column];
      if (weight === 0) continue;
      const from = (row + 0.5) * unit - 0.5;
      const slope = ((column - row) * unit) / Math.max(1, width - 1);
      const strength = Math.min(1, weight ** (0.8 / density ** 0.45)) * density ** 0.4;
      for (let x = 0; x < width; x++) {
        const y = from + slope * x;
        const upper = Math.floor(y);
        const part = y - upper;
        add(x, upper, strength * (1 - part));
        add(x, upper + 1, strength * part);
      }
    }
  }

  function add(x: number, y: number, more: number): void {
    if (y < 0 || y >= height) return;
    const pixel = y * width + x;
    const now = ink[pixel];
    ink[pixel] = more > now ? more + now * 0.35 : now + more * 0.35;
  }
}

function drawHeat(weights: Float32Array, rows: number, columns: number, on: Canvas): void {
  const { width, height, ink } = on;
  for (let y = 0; y < height; y++) {
    const row = Math.floor((y * rows) / height) * columns;
    for (let x = 0; x < width; x++) {
      ink[y * width + x] = Math.sqrt(weights[row + Math.floor((x * columns) / width)]);
    }
  }
}

export function colored({ ink }: Canvas, paper: Rgb, color: Rgb): Uint8ClampedArray<ArrayBuffer> {
  return pixelsOf(ink.length, (i) => mix(paper, color, Math.min(1, ink[i])));
}
