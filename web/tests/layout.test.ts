import { expect, test } from "vitest";
import { Lens } from "../src/data/lens.ts";
import { columnsOf, rowAt, rowY } from "../src/layout/columns.ts";
import { focusOf } from "../src/layout/focus.ts";
import { lineStyle, linksOf } from "../src/layout/links.ts";
import { shorten } from "../src/layout/matrix.ts";
import { overviewOf, thumbAt } from "../src/layout/overview.ts";
import { panesOf } from "../src/layout/panes.ts";
import { drawHeat, drawLines, pool, poolingOf } from "../src/layout/thumbnail.ts";
import { headColors } from "../src/paint/color.ts";
import { svgOf } from "../src/paint/svg.ts";
import { NO_HOVER } from "../src/state/store.ts";
import { goldenTraces } from "./golden.ts";

const [block] = (await goldenTraces())[0].blocks;
const layers = (count: number) => Array.from({ length: count }, (_, i) => i);
const everywhere = () => true;

test("12×12 thumbnails fit the pane; 30×9 and 32×32 scroll one way", () => {
  const fit = overviewOf({
    width: 640,
    height: 700,
    layers: layers(12),
    heads: 12,
    has: everywhere,
    rank: null,
  });
  expect(fit.width).toBeLessThanOrEqual(640);
  expect(fit.height).toBeLessThanOrEqual(700);
  const tall = overviewOf({
    width: 400,
    height: 700,
    layers: layers(30),
    heads: 9,
    has: everywhere,
    rank: null,
  });
  expect(tall.width).toBeLessThanOrEqual(400);
  expect(tall.size).toBeGreaterThanOrEqual(22);
  const big = overviewOf({
    width: 900,
    height: 700,
    layers: layers(32),
    heads: 32,
    has: everywhere,
    rank: null,
  });
  expect(big.thumbs).toHaveLength(1024);
  expect(big.width).toBeLessThanOrEqual(900);
});

test("sorted thumbnails begin with the highest, and can be hit", () => {
  const has = (layer: number, head: number) => !(layer === 1 && head === 1);
  const rank = (layer: number, head: number) => layer * 2 + head;
  const sorted = overviewOf({ width: 500, height: 500, layers: [3, 4], heads: 2, has, rank });
  expect(sorted.thumbs.map(({ layer, head }) => [layer, head])).toEqual([
    [4, 0],
    [3, 1],
    [3, 0],
  ]);
  const second = sorted.thumbs[1];
  expect(thumbAt(sorted, second.x + 2, second.y + 2)).toBe(second);
  expect(thumbAt(sorted, 499, 499)).toBeNull();
});

test("rows are found where they are drawn", () => {
  const columns = columnsOf({
    width: 700,
    height: 500,
    rows: 20,
    columns: 10,
    rowEms: 5,
    columnEms: 9,
    series: 3,
  });
  for (const row of [0, 7, 19]) expect(rowAt(columns, rowY(columns, row), 20)).toBe(row);
  expect(rowAt(columns, -5, 20)).toBe(-1);
  expect(columns.lines.left).toBeLessThan(columns.lines.right);
  expect(columns.cells.right + columns.cells.width).toBeLessThanOrEqual(700);
  const long = columnsOf({
    width: 700,
    height: 500,
    rows: 1024,
    columns: 1024,
    rowEms: 40,
    columnEms: 40,
    series: 1,
  });
  expect(long.rowHeight).toBe(13);
  expect(long.lines.right - long.lines.left).toBeGreaterThan(100);
});

test("links: threshold, strongest, focus and budget", () => {
  const matrix = {
    rows: 2,
    columns: 3,
    weights: Float32Array.of(0.7, 0.2, 0.1, 0.05, 0.9, Number.NaN),
  };
  const all = { threshold: 0, top: 0, rows: null, columns: null, budget: 100 };
  const links = linksOf(matrix, all);
  expect([...links.weights].map((w) => Math.round(w * 100))).toEqual([5, 10, 20, 70, 90]);
  expect(linksOf(matrix, { ...all, threshold: 0.15 }).count).toBe(3);
  expect(linksOf(matrix, { ...all, top: 1 }).count).toBe(2);
  expect(linksOf(matrix, { ...all, rows: new Set([1]) }).count).toBe(2);
  expect(linksOf(matrix, { ...all, columns: new Set([0]) }).count).toBe(2);
  const few = linksOf(matrix, { ...all, budget: 2 });
  expect(few.count).toBe(2);
  expect(few.floor).toBeGreaterThan(0.2);
});

test("a line looks the same however many heads there are, and stronger for more weight", () => {
  expect(lineStyle(0.5).opacity).toBeGreaterThan(lineStyle(0.1).opacity);
  expect(lineStyle(1).opacity).toBe(1);
});

test("hover comes before pins", () => {
  const { rows, columns } = new Lens(block, { unit: "token", specials: true, pair: "all" });
  const pins = { queries: [1], keys: [] };
  expect(focusOf(rows, columns, pins, NO_HOVER)).toEqual({ rows: new Set([1]), columns: null });
  const hover = { ...NO_HOVER, key: 2 };
  expect(focusOf(rows, columns, pins, hover)).toEqual({ rows: null, columns: new Set([2]) });
});

test("pooling keeps the strongest weight of a cell", () => {
  const lens = new Lens(block, { unit: "token", specials: true, pair: "all" });
  const pooled = pool(block.planes, 0, 0, poolingOf(lens, 2, true));
  expect([pooled.rows, pooled.columns]).toEqual([2, 2]);
  expect([...pooled.weights].map((w) => Math.round(w * 100))).toEqual([100, 0, 25, 50]);
  const pixels = new Float32Array(16);
  drawHeat(pooled, 4, pixels);
  expect(pixels[0]).toBeCloseTo(1, 2);
  expect(pixels[15]).toBeCloseTo(Math.SQRT1_2, 2);
  drawLines(pooled, 4, pixels);
  expect(Math.max(...pixels)).toBeGreaterThan(0.5);
});

test("without special tokens thumbnails are renormalized too", () => {
  const lens = new Lens(block, { unit: "token", specials: false, pair: "all" });
  const { weights } = pool(block.planes, 0, 0, poolingOf(lens, 64, false));
  expect(weights[2]).toBeCloseTo(1 / 3, 2);
  expect(weights[3]).toBeCloseTo(2 / 3, 2);
});

test("panes: side by side where there is room, stacked where not, alone when asked", () => {
  const input = {
    width: 1400,
    height: 760,
    view: "all",
    layers: 12,
    heads: 12,
    sorted: false,
    neurons: true,
  } as const;
  expect(panesOf(input).areas).toBe('"model head" "neurons neurons"');
  expect(panesOf({ ...input, neurons: false }).areas).toBe('"model head"');
  expect(panesOf({ ...input, width: 420, neurons: false }).areas).toBe('"model" "head"');
  expect(panesOf({ ...input, view: "head" })).toMatchObject({
    model: false,
    head: true,
    areas: '"head"',
  });
});

test.each([1, 4, 12, 16, 32, 64])("%i heads have different colors", (count) => {
  for (const scheme of ["light", "dark"] as const) {
    const colors = headColors(count, scheme).map((rgb) => rgb.join());
    expect(new Set(colors).size).toBe(count);
  }
});

test("SVG is text that XML takes", () => {
  const text = {
    kind: "text",
    x: 1,
    y: 2,
    text: '<a>&"\u0000',
    size: 12,
    anchor: "start",
    fill: "#000",
  } as const;
  const svg = svgOf({ width: 10, height: 10, background: "#fff", marks: [text] }, () => "");
  expect(svg).toContain("&lt;a&gt;&amp;&quot;\ufffd</text>");
});

test("long labels are cut between characters", () => {
  expect(shorten("abcdef", 4)).toBe("abc…");
  expect(shorten("👍👍👍👍", 3)).toBe("👍👍…");
});
