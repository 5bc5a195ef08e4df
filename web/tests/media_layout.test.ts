import { expect, test } from "vitest";
import { openMedia, openPiece, type Patch, pieceOf } from "../src/data/media.ts";
import {
  patchAt,
  patchBox,
  pictureBoxes,
  pictureMarks,
  sharesOf,
  ticks,
  timelineMarks,
} from "../src/layout/media_layout.ts";
import { themeOf } from "../src/paint/theme.ts";

const patch = (row: number, column: number): Patch =>
  openPiece([
    "patch",
    0,
    row,
    column,
    row / 2,
    column / 2,
    (row + 1) / 2,
    (column + 1) / 2,
  ]) as Patch;
const KEYS = [null, patch(0, 0), patch(0, 1), patch(1, 0), patch(1, 1)];
const MATRIX = {
  rows: 2,
  columns: 5,
  weights: Float32Array.from([0.1, 0.2, 0.3, 0.4, 0, 0.5, 0, 0, 0.1, 0.4]),
};
const theme = themeOf("light");

test("pixels become opaque, and pieces what they say", async () => {
  const readBuffer = async () => Uint8Array.from([1, 2, 3, 4, 5, 6]);
  const media = await openMedia({ images: [{ width: 2, height: 1, pixels: 0 }] }, readBuffer);
  expect([...media.pictures[0].pixels]).toEqual([1, 2, 3, 255, 4, 5, 6, 255]);
  expect(media.sound).toBeNull();
  expect(openPiece(["frame", 1, 2])).toEqual({ kind: "frame", start: 1, end: 2 });
  expect(openPiece(null)).toBeNull();
  const frames = [openPiece(["frame", 0, 1]), openPiece(["frame", 1, 2])];
  expect(pieceOf(frames, [0, 1])).toEqual({ kind: "frame", start: 0, end: 2 });
  expect(pieceOf(KEYS, [1, 2])).toBeNull();
});

test("shares are those of the focused query, or the mean of all", () => {
  const none = { row: -1, column: -1 };
  const focused = sharesOf(MATRIX, { row: 0, column: -1 }, [null, null], KEYS)!;
  expect(focused.side).toBe("key");
  expect(focused.weights[3]).toBeCloseTo(0.4);
  expect(focused.highest).toBeCloseTo(0.4);
  const mean = sharesOf(MATRIX, none, [null, null], KEYS)!;
  expect(mean.weights[4]).toBeCloseTo(0.2);
  expect(mean.highest).toBeCloseTo(0.25); // without the 0.3 that goes to a key without a patch
  expect(sharesOf(MATRIX, none, [null, null], [null, null, null, null, null])).toBeNull();
  const turned = sharesOf(MATRIX, { row: -1, column: 0 }, [patch(0, 0), patch(0, 1)], KEYS)!;
  expect(turned.side).toBe("query");
  expect(turned.weights[1]).toBeCloseTo(0.5);
});

test("patches tile their picture without seams, and are found under the pointer", () => {
  const picture = { width: 40, height: 20, pixels: new Uint8ClampedArray(3200) };
  const boxes = pictureBoxes([picture, picture], 205, 100);
  expect(boxes.map((box) => [box.x, box.width, box.height])).toEqual([
    [0, 99.5, 49.75],
    [105.5, 99.5, 49.75],
  ]);
  const [a, b] = [patchBox(patch(0, 0), boxes)!, patchBox(patch(0, 1), boxes)!];
  expect(a.x + a.width).toBe(b.x);
  expect(patchAt(KEYS, boxes, 90, 40)).toBe(4);
  expect(patchAt(KEYS, boxes, 300, 40)).toBe(-1);
});

test("the veil is thinnest where attention is highest", () => {
  const picture = { width: 2, height: 2, pixels: new Uint8ClampedArray(16) };
  const boxes = pictureBoxes([picture], 100, 100);
  const shares = sharesOf(MATRIX, { row: 0, column: -1 }, [null, null], KEYS);
  const marks = pictureMarks([picture], boxes, shares, theme);
  expect(marks.map((mark) => mark.kind)).toEqual(["image", "rect", "rect", "rect", "rect"]);
  const alphas = marks.slice(1).map((mark) => {
    const fill = mark.kind === "rect" ? mark.fill : "";
    return Number(fill.match(/,([\d.]+)\)$/)?.[1] ?? 1);
  });
  expect(alphas[2]).toBe(0);
  expect(alphas[3]).toBeCloseTo(0.86);
  expect(alphas[0]).toBeGreaterThan(alphas[1]);
});

test("time runs in round steps, and padding is not drawn", () => {
  expect(ticks(2, 280)).toEqual([0, 0.5, 1, 1.5, 2]);
  const sound = { seconds: 1, peaks: Uint8Array.from([0, 255, 0, 128]) };
  const pieces = [
    openPiece(["frame", 0, 0.5]),
    openPiece(["frame", 0.5, 1]),
    openPiece(["frame", 1, 1.5]),
  ];
  const shares = {
    side: "key" as const,
    pieces,
    weights: Float32Array.from([0.5, 0.25, 0.25]),
    highest: 0.5,
  };
  const bars = timelineMarks(sound, shares, 200, 100, theme).filter(
    (mark) => mark.kind === "rect" && mark.fill === theme.tone.accent,
  );
  expect(bars.map((bar) => (bar.kind === "rect" ? [bar.x, bar.width] : []))).toEqual([
    [0, 100],
    [100, 100],
  ]);
});
