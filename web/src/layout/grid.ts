// All heads in a table: how large the cells are, and the picture of it.

import type { Spot } from "../data/effects.ts";
import type { Filter } from "../data/lens.ts";
import type { Block } from "../data/trace.ts";
import type { Rgb } from "../paint/color.ts";
import type { ImageMark } from "./scene.ts";
import { type Canvas, colored, drawHeat, drawLines, sieved, sieveOf } from "./thumbnail.ts";

export interface Grid {
  readonly cellWidth: number;
  readonly cellHeight: number;
  /** Room for layer numbers at the left, and for head numbers (and brackets) on top. */
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
  /** How a role is written on a cell. */
  readonly label: "name" | "sign" | "side" | "none";
}

export const GAP = 2;
const NAME = 13;

export function gridOf(
  room: { width: number; height: number },
  layers: number,
  heads: number,
  isGrouped: boolean,
  isTouched = false,
): Grid {
  const left = 32;
  const top = 18 + (isGrouped ? 12 : 0);
  const pitch = Math.min(46, Math.max(14, Math.floor((room.width - left - 10) / heads)));
  const free = Math.floor((room.height - top - 6) / layers) - GAP;
  const cellHeight = Math.min(84, Math.max(isTouched ? 20 : 9, free));
  const cellWidth = pitch - GAP;
  const isTall = cellHeight >= 34;
  return {
    cellWidth,
    cellHeight,
    left,
    top,
    width: left + heads * pitch,
    height: top + layers * (cellHeight + GAP),
    label: isTall ? (cellWidth >= 28 ? "name" : "sign") : cellWidth >= 24 ? "side" : "none",
  };
}

/** How wide the pane of all heads is, so that thumbnails are of a good size. */
export function gridWidth(width: number, heads: number): number {
  const wanted = 58 + heads * (heads <= 12 ? 33 : 30);
  return Math.round(Math.max(width > 1100 ? 340 : 268, Math.min(wanted, width * 0.4)));
}

/** Where the cell of a number stands, row after row. */
export function placeOf(grid: Grid, i: number, across: number): { x: number; y: number } {
  return {
    x: grid.left + (i % across) * (grid.cellWidth + GAP),
    y: grid.top + Math.floor(i / across) * (grid.cellHeight + GAP),
  };
}

export interface CellLook {
  readonly paper: Rgb;
  readonly ink: Rgb;
}

/** A picture of each head, in its place. */
export function gridPictures(
  block: Block,
  grid: Grid,
  filter: Filter,
  ratio: number,
  spots: readonly Spot[],
  look: (layerIndex: number, head: number) => CellLook,
): ImageMark[] {
  const sieve = sieveOf(block, filter);
  const [rows, columns] = [sieve.rows.length, sieve.columns.length];
  const inner =
    grid.label === "name" || grid.label === "sign" ? grid.cellHeight - NAME : grid.cellHeight;
  const [width, height] = [Math.round(grid.cellWidth * ratio), Math.round(inner * ratio)];
  const canvas: Canvas = { width, height, ink: new Float32Array(width * height) };
  const marks: ImageMark[] = [];
  spots.forEach(({ layerIndex, head }, i) => {
    if (!block.has(layerIndex, head)) return;
    const weights = sieved(block, layerIndex, head, sieve);
    (sieve.isLines ? drawLines : drawHeat)(weights, rows, columns, canvas);
    const { paper, ink } = look(layerIndex, head);
    marks.push({
      kind: "image",
      ...placeOf(grid, i, block.heads),
      width: grid.cellWidth,
      height: inner,
      columns: width,
      rows: height,
      pixels: colored(canvas, paper, ink),
      smooth: true,
    });
  });
  return marks;
}
