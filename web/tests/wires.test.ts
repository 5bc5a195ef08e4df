import { expect, test } from "vitest";
import { wiresLayout } from "../src/layout/wires_layout.ts";
import { headsOf } from "../src/view/wires_view.tsx";
import { golden, goldenSession } from "./golden.ts";

const part = golden.header.wires!;
const layoutOf = (width: number) =>
  wiresLayout({ part, width, height: 400, textWidth: (at) => 8 * part.tokens[0][at].length });

test("a wire stands at the word where it is read, layers upward", () => {
  const { boxes, words, rows, lines, wordY } = layoutOf(700);
  const x = new Map(words.map((word) => [word.position, word.x]));
  const box = (text: string) => boxes.find((other) => other.text === text)!;
  expect(box("L0 H1").x).toBe(x.get(2));
  expect(box("k").x).toBe(x.get(1));
  expect(rows.map(({ text }) => text)).toEqual(["L0", "L1", "MLP 1"]);
  expect(box("L0 H1").y).toBeGreaterThan(box("L1 H0").y);
  expect(box("MLP 1").y).toBeLessThan(box("L1 H0").y);
  expect(boxes.every(({ kind, y }) => kind === "word" || y < wordY)).toBe(true);
  // Width is the share; the largest has the widest line.
  expect(lines.map(({ width }) => width)).toEqual(
    [...lines].map(({ width }) => width).sort((a, b) => b - a),
  );
});

test("keys of a group are joined with the head that reads them", () => {
  expect(layoutOf(700).dotted).toHaveLength(1);
  expect(headsOf(part.wires[1])).toEqual([{ layer: 1, head: 0 }]);
  expect(headsOf(part.wires[0])).toEqual([
    { layer: 0, head: 1 },
    { layer: 1, head: 0 },
  ]);
});

test("small screens leave out words far from every wire", () => {
  const tokens = part.tokens.map(([first, ...rest]) => [first, ...Array(40).fill("x"), ...rest]);
  const moved = {
    ...part,
    tokens,
    changed: [41],
    position: 42,
    wires: part.wires.map((wire) => ({ ...wire, at: wire.at + 40 })),
  };
  const long = wiresLayout({ part: moved, width: 700, height: 400, textWidth: () => 20 });
  expect(long.words.map(({ position }) => position)).toEqual([-1, 40, 41, 42]);
  expect(layoutOf(300).width).toBe(300);
});

test("the tab is there where a page has wires, and its wire is in the address", async () => {
  const session = await goldenSession("tab=wires&wire=2");
  expect(session.tab.value).toBe("wires");
  expect(session.selection.value.wire).toBe(2);
  expect(session.store.fragment).toContain("tab=wires&wire=2");
});
