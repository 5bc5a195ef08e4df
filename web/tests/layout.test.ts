import { expect, test } from "vitest";
import { FilteredBlock, NO_FILTER } from "../src/data/filtered_block.ts";
import { arcsOf, type Place } from "../src/layout/arcs_layout.ts";
import {
  gridOf,
  gridPictures,
  gridWidth,
  placeOf,
  thumbnailFilter,
  thumbnailWeights,
} from "../src/layout/heads_layout.ts";
import { columnsOf, lineMarks, lineWidth, rowY } from "../src/layout/lines_layout.ts";
import {
  cellAt,
  matrixLayout,
  matrixMarks,
  panned,
  revealed,
  shorten,
  wholeWindow,
  zoomed,
} from "../src/layout/matrix_layout.ts";
import { svgOf } from "../src/paint/painter.ts";
import { inkOn, ROLES, roleColor } from "../src/paint/roles.ts";
import { rgbOfHex, themeOf } from "../src/paint/theme.ts";
import { goldenTraces } from "./golden.ts";

const [block] = (await goldenTraces())[0].blocks;
await Promise.all(block.planes.map((lazy) => lazy.whole()));
const theme = themeOf("light");

test("all heads of usual models fit their pane without scrolling", () => {
  for (const [layers, heads, height] of [
    [6, 12, 560],
    [12, 12, 560],
    [30, 9, 560],
  ]) {
    const width = gridWidth(1440, heads);
    const grid = gridOf({ width, height }, layers, heads, false);
    expect(grid.width).toBeLessThanOrEqual(width);
    expect(grid.height).toBeLessThanOrEqual(height);
  }
  expect(gridOf({ width: 260, height: 211 }, 6, 12, false).height).toBeLessThanOrEqual(211);
  expect(gridOf({ width: 440, height: 560 }, 6, 12, false).label).toBe("name");
  expect(gridOf({ width: 330, height: 560 }, 30, 9, true).label).toBe("side");
});

test("thumbnails are painted from codes, for heads that are there, as the filter says", () => {
  const grid = gridOf({ width: 300, height: 300 }, 2, 2, false);
  const look = () => ({ paper: theme.rgb.panel, ink: theme.rgb.ink });
  const spots = [0, 1].flatMap((head) => [0, 1].map((layerIndex) => ({ layerIndex, head })));
  const pictures = gridPictures(block, grid, NO_FILTER, 1, spots, look);
  expect(pictures).toHaveLength(3);
  expect(pictures[1]).toMatchObject(placeOf(grid, 1));
  const all = thumbnailWeights(block, 0, 0, thumbnailFilter(block, NO_FILTER));
  expect(all).toHaveLength(9);
  expect(all[0]).toBeCloseTo(1, 2);
  const hidden = thumbnailWeights(
    block,
    0,
    0,
    thumbnailFilter(block, { ...NO_FILTER, specials: "hidden" }),
  );
  expect(hidden).toHaveLength(4);
  const strong = thumbnailWeights(
    block,
    0,
    0,
    thumbnailFilter(block, { ...NO_FILTER, above: 0.9 }),
  );
  expect([...strong].filter((weight) => weight > 0)).toHaveLength(1);
});

test("rows are tall enough for a finger where they must be, and numbers have room", () => {
  const input = { width: 380, height: 300, rows: 17, columns: 17, rowEms: 3, columnEms: 3 };
  const phone = columnsOf({ ...input, least: 32 });
  expect(phone.rowHeight).toBe(32);
  expect(rowY(phone, 1) - rowY(phone, 0)).toBe(32);
  expect(phone.numbers.x + 30).toBeLessThanOrEqual(380);
  expect(phone.lines.right - phone.lines.left).toBeGreaterThan(80);
});

test("a looked-at row shows all of its links, the others their strongest", () => {
  const filtered = new FilteredBlock(block, NO_FILTER);
  const columns = columnsOf({
    width: 500,
    height: 200,
    rows: 3,
    columns: 3,
    rowEms: 2,
    columnEms: 2,
    least: 16,
  });
  const input = {
    matrix: filtered.matrix(1, 0)!,
    rows: filtered.rows,
    keys: filtered.columns,
    above: 0.02,
    top: 0,
    dims: true,
    color: theme.rgb.positive,
    dashed: false,
  };
  const free = lineMarks({ ...input, focus: { row: -1, column: -1 } }, columns, theme);
  expect(free).toHaveLength(3);
  const looked = lineMarks({ ...input, focus: { row: 2, column: -1 } }, columns, theme);
  expect(looked).toHaveLength(2 + 3);
  const readers = lineMarks({ ...input, focus: { row: -1, column: 0 } }, columns, theme);
  expect(readers.map((mark) => (mark.kind === "curve" ? mark.y2 : 0))).toEqual(
    Array(3).fill(rowY(columns, 0)),
  );
  expect(lineWidth(1)).toBeGreaterThan(2 * lineWidth(0.3));
});

test("arcs stand between words of one line only", () => {
  const filtered = new FilteredBlock(block, NO_FILTER);
  const place = (x: number, y: number): Place => ({ x, y, width: 30 });
  const places = new Map([
    ["query0", place(20, 58)],
    ["query1", place(80, 60)],
    ["query2", place(140, 58)],
  ]);
  const input = {
    matrix: filtered.matrix(1, 0)!,
    filtered,
    focus: { row: 2, column: -1 },
    read: Float32Array.of(0.123, 0.456, 0.421),
    above: 0.02,
    isCross: false,
  };
  const arcs = arcsOf(input, places);
  expect(arcs.map(({ to }) => to).sort()).toEqual([0, 1, 2]);
  expect(arcs.find(({ to }) => to === 1)!.label).toBe("0.46");
  places.set("query0", place(20, 120));
  expect(
    arcsOf(input, places)
      .map(({ to }) => to)
      .sort(),
  ).toEqual([1, 2]);
});

test("a matrix is fitted, magnified about a point, moved and brought into sight", () => {
  const layout = matrixLayout({ width: 600, height: 500 }, 200, 200, 4);
  const whole = wholeWindow(layout);
  expect(whole.cell * 200).toBeLessThanOrEqual(500);
  const [x, y] = [layout.left + 100.2, layout.top + 150.2];
  const before = cellAt(whole, layout, x, y)!;
  const close = zoomed(whole, layout, 4, x, y);
  expect(cellAt(close, layout, x, y)).toEqual(before);
  expect(panned(close, layout, 10_000, 10_000)).toMatchObject({ row: 0, column: 0 });
  const seen = revealed(close, layout, 199, 0);
  expect(seen.row).toBeGreaterThan(close.row);
  expect(seen.column).toBe(0);
  expect(zoomed(close, layout, 0.01)).toMatchObject({ cell: layout.fit, row: 0, column: 0 });
  expect(matrixLayout({ width: 600, height: 300 }, 8, 1500, 4).tall).toBeGreaterThan(10);
});

test("labels of a matrix are shortened only where they have no room", () => {
  const names = ["[CLS]", "doctor", "mother"];
  const rows = names.map((label, i) => ({ label, positions: [i], special: i === 0, segment: 0 }));
  const square = { width: 3, height: 3, rows: 3, columns: 3, pool: 1 };
  const heat = { ...square, pixels: new Uint8ClampedArray(36) };
  const none = { row: -1, column: -1 };
  for (const [width, isCut] of [
    [346, false],
    [170, true],
  ] as const) {
    const layout = matrixLayout({ width, height: 520 }, 3, 3, 2.7);
    const input = { heat, rows, keys: rows, focus: none, pinned: none };
    const marks = matrixMarks(input as never, wholeWindow(layout), layout, themeOf("light"));
    const texts = marks.flatMap((mark) => (mark.kind === "text" ? [mark.text] : []));
    expect(texts.some((text) => text.includes("…"))).toBe(isCut);
  }
});

test("roles are told apart by color, symbol and name", () => {
  for (const part of ["name", "light", "dark"] as const) {
    expect(new Set(ROLES.map((role) => role[part])).size).toBe(ROLES.length);
  }
  expect(new Set(ROLES.map(({ symbol }) => symbol)).size).toBe(ROLES.length);
  for (const role of ROLES) {
    for (const scheme of ["light", "dark"] as const) {
      const color = roleColor(role, scheme);
      expect(contrast(color, rgbOfHex(inkOn(color)))).toBeGreaterThanOrEqual(4.5);
    }
  }
});

/** Contrast ratio of WCAG 2. */
function contrast(a: readonly number[], b: readonly number[]): number {
  const light = (rgb: readonly number[]) => {
    const [r, g, b] = rgb.map((part) => {
      const share = part / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
}

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
