// A document in lines of text with an arc from a query token to a key token.

import { printed } from "../data/tokens.ts";
import { line, round, svg, text, textWidth } from "./draw.ts";

const SIZE = 13;
const LINE = 21;
const LEFT = 52;
const RISE = 16;

interface Piece {
  readonly text: string;
  readonly position: number;
  readonly x: number;
  readonly line: number;
  readonly width: number;
}

/** The group and how high it is. */
export function arcOf(
  tokens: readonly string[],
  arc: { weight: number; query: number; key: number },
  width: number,
  color = "var(--positive)",
): { group: SVGGElement; height: number } {
  const pieces = layOut(tokens, arc, width);
  const lines = (pieces.at(-1)?.line ?? 0) + 1;
  const base = (row: number) => RISE + SIZE + row * (LINE + (lines > 1 ? 5 : 0));
  const group = svg("g");
  group.append(text(0, base(0), arc.weight.toFixed(2), { "font-size": 12 }));
  const at = new Map<number, Piece>();
  for (const piece of pieces) {
    const isKey = piece.position === arc.key;
    const isEnd = isKey || piece.position === arc.query;
    const y = base(piece.line);
    const ink = isKey ? color : "var(--ink)";
    const look = { "font-size": SIZE, fill: ink, ...(isEnd ? { "font-weight": 600 } : {}) };
    at.set(piece.position, piece);
    group.append(text(piece.x, y, piece.text, look));
    if (!isEnd) continue;
    const under = { stroke: ink, "stroke-width": 1.5 };
    group.append(line([piece.x, y + 4], [piece.x + piece.width, y + 4], under));
  }
  const from = at.get(arc.query);
  const to = at.get(arc.key);
  if (from && to && from !== to)
    group.prepend(...arrow(from, to, base, color, 1 + 2.5 * arc.weight));
  return { group, height: base(lines - 1) + 12 };
}

function layOut(
  tokens: readonly string[],
  arc: { query: number; key: number },
  width: number,
): Piece[] {
  const hasSpaces = tokens.some((token) => token.startsWith(" "));
  const pieces: Piece[] = [];
  let [x, line] = [LEFT, 0];
  let word: { text: string; position: number; width: number }[] = [];
  const endWord = () => {
    const needed = word.reduce((sum, one) => sum + one.width, 0);
    if (x + needed > width && x > LEFT) [x, line] = [LEFT, line + 1];
    for (const one of word) {
      if (x + one.width > width && x > LEFT) [x, line] = [LEFT, line + 1];
      pieces.push({ ...one, x, line });
      x += one.width;
    }
    x += 4;
    word = [];
  };
  tokens.forEach((token, position) => {
    const isNew = hasSpaces ? token.startsWith(" ") : !token.startsWith("##");
    if (isNew && word.length) endWord();
    const isEnd = position === arc.query || position === arc.key;
    // A space of its own is a token in some vocabularies; it shows only where an arc ends.
    const isBlank = /^ *$/.test(token) && !isEnd;
    const bare = isBlank ? "" : printed(hasSpaces ? token : token.replace(/^##(?=.)/, ""));
    const shown = bare.length > 40 ? `${bare.slice(0, 39)}…` : bare;
    word.push({ text: shown, position, width: textWidth(shown, SIZE, isEnd) });
  });
  if (word.length) endWord();
  return pieces;
}

function arrow(
  from: Piece,
  to: Piece,
  base: (line: number) => number,
  color: string,
  width: number,
): SVGElement[] {
  const middle = (piece: Piece) => piece.x + piece.width / 2;
  const top = (piece: Piece) => base(piece.line) - SIZE - 1;
  const [x1, y1, x2, y2] = [middle(from), top(from), middle(to), top(to)].map(round);
  const reach = Math.abs(x2 - x1);
  const rise = from.line === to.line ? Math.min(RISE + 3, 8 + reach * 0.06) : RISE;
  const high = Math.min(y1, y2) - rise;
  const path = `M${x1} ${y1} C${x1} ${round(high)} ${x2} ${round(high)} ${x2} ${y2}`;
  const head = `M${x2 - 3.2} ${y2 - 5} L${x2} ${y2} L${x2 + 3.2} ${y2 - 5}`;
  const look = { fill: "none", stroke: color, "stroke-width": width, "stroke-linecap": "round" };
  return [svg("path", { d: path, ...look }), svg("path", { d: head, ...look })];
}
