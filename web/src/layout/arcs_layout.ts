// Arcs over text: attention between words of a line, and one arc over a text in several lines.

import { type FilteredBlock, type Focus, type Matrix, rowWeights } from "../data/filtered_block.ts";
import { shortWeight } from "../data/format.ts";
import type { Link } from "../data/head_summary.ts";
import { printed } from "../data/tokens.ts";
import { textWidth } from "../paint/painter.ts";

export type Place = Readonly<{ x: number; y: number; width: number }>;

export interface Arc {
  readonly from: number;
  readonly to: number;
  readonly path: string;
  readonly width: number;
  readonly opacity: number;
  /** Weight at the end of the arc; empty for weak ones. */
  readonly label: string;
  readonly labelX: number;
  /** Side of the arc's end on which the label stands: outside. */
  readonly anchor: "start" | "end";
}

interface ArcsInput {
  readonly matrix: Matrix;
  readonly filtered: FilteredBlock;
  readonly focus: Focus;
  readonly read: Float32Array | null;
  readonly above: number;
  readonly isCross: boolean;
  /** Factor by which weights are drawn larger. */
  readonly scale?: number;
  /** Pixels by which arcs of one of several heads are moved aside. */
  readonly shift?: number;
}

const LABELED = 2;
/** Words whose tops differ by less than this are in one line. */
const LINE = 18;
/** Number of words up to which each shows its strongest link when none is in focus. */
export const CROWDED = 32;

/** Build arcs between words of one line; across lines, shading replaces them. */
export function arcsOf(input: ArcsInput, places: ReadonlyMap<string, Place>): Arc[] {
  const { filtered, focus, scale = 1, shift = 0 } = input;
  const links = linksOf(input).sort((a, b) => a.weight - b.weight);
  const most = links.at(-1)?.weight ?? 1;
  const isLooked = focus.row >= 0 || focus.column >= 0;
  const keyAxis = input.isCross ? "key" : "query";
  const feet = links.flatMap((link) => {
    const from = places.get(`query${link.from.positions[0]}`);
    const to = places.get(`${keyAxis}${link.to.positions[0]}`);
    return from && to && Math.abs(from.y - to.y) < LINE ? [{ link, from, to }] : [];
  });
  const reach = Math.max(80, ...feet.map(({ from, to }) => Math.abs(from.x - to.x)));
  const first = Math.min(...[...places.values()].map(({ y }) => y));
  return feet
    .filter(({ from }) => from.y - first < LINE)
    .map(({ link, from, to }, i) => {
      const distance = Math.abs(from.x - to.x);
      const rise = 8 + Math.max(4, first - 20) * Math.sqrt(distance / reach);
      const y = first;
      const isItself = distance < 1;
      const [x1, x2] = isItself ? [from.x - 7, from.x + 7] : [from.x, to.x];
      const end = focus.row < 0 && focus.column >= 0 ? from : to;
      const isLeft = end.x <= (end === to ? from : to).x;
      const isStrong =
        isLooked && i >= feet.length - LABELED && link.weight * scale >= 0.1 && !isItself;
      return {
        from: filtered.rows.indexOf(link.from),
        to: filtered.columns.indexOf(link.to),
        path: arcPath([x1 - shift, y], [x2 + shift, y], y - rise * 1.33),
        width: isLooked ? 0.8 + 4.4 * Math.min(1, link.weight * scale) : 0.7 + 1.6 * link.weight,
        opacity: isLooked ? 0.3 + (0.7 * link.weight) / most : 0.15 + 0.5 * link.weight,
        label: isStrong ? shortWeight(link.weight) : "",
        labelX: isLeft ? Math.max(24, end.x - 6) : end.x + 6,
        anchor: isLeft ? "end" : "start",
      };
    });
}

function linksOf({ matrix, filtered, focus, read, above }: ArcsInput): Link[] {
  const { rows, columns } = filtered;
  const links: Link[] = [];
  if (focus.row >= 0 && read) {
    columns.forEach((to, c) => {
      if (read[c] >= above) links.push({ from: rows[focus.row], to, weight: read[c] });
    });
    return links;
  }
  rows.forEach((from, r) => {
    const row = rowWeights(matrix, r);
    if (focus.column >= 0) {
      const weight = row[focus.column];
      if (weight >= above) links.push({ from, to: columns[focus.column], weight });
      return;
    }
    if (rows.length > CROWDED || from.special) return;
    let best = 0;
    for (let c = 1; c < row.length; c++) if (row[c] > row[best]) best = c;
    const isTelling = row[best] >= Math.max(above, 0.2) && !columns[best]?.special && best > 0;
    if (isTelling) links.push({ from, to: columns[best], weight: row[best] });
  });
  return links;
}

/** SVG path of an arc between two points; its handles are at height `high`. */
export function arcPath(
  [x1, y1]: readonly [number, number],
  [x2, y2]: readonly [number, number],
  high: number,
): string {
  return `M${x1} ${y1}C${x1} ${high} ${x2} ${high} ${x2} ${y2}`;
}

/** Token of a text in several lines; `y` is its baseline. */
type PlacedToken = Place & Readonly<{ text: string; position: number; line: number }>;

interface ArcText {
  readonly tokens: readonly PlacedToken[];
  readonly height: number;
  /** Paths of the arc and of its arrowhead; empty across lines, or if it ends where it begins. */
  readonly paths: readonly string[];
}

export const ARC_FONT = 13;
const LEFT = 52;
const RISE = 16;
const LONGEST = 40;

/** Lay out a document in lines, with an arc from a query token to a key token. */
export function arcText(
  tokens: readonly string[],
  { query, key }: { query: number; key: number },
  width: number,
): ArcText {
  const hasSpaces = tokens.some((token) => token.startsWith(" "));
  const placed: Omit<PlacedToken, "y">[] = [];
  let [x, line] = [LEFT, 0];
  let word: { text: string; position: number; width: number }[] = [];
  const breakBefore = (needed: number) => {
    if (x + needed > width && x > LEFT) [x, line] = [LEFT, line + 1];
  };
  const endWord = () => {
    breakBefore(word.reduce((sum, token) => sum + token.width, 0));
    for (const token of word) {
      breakBefore(token.width);
      placed.push({ ...token, x, line });
      x += token.width;
    }
    x += 4;
    word = [];
  };
  tokens.forEach((token, position) => {
    const isNew = hasSpaces ? token.startsWith(" ") : !token.startsWith("##");
    if (isNew && word.length) endWord();
    const isEnd = position === query || position === key;
    // Some vocabularies have tokens of spaces; these show only where the arc ends.
    const isBlank = /^ *$/.test(token) && !isEnd;
    const bare = isBlank ? "" : printed(hasSpaces ? token : token.replace(/^##(?=.)/, ""));
    const text = bare.length > LONGEST ? `${bare.slice(0, LONGEST - 1)}…` : bare;
    word.push({ text, position, width: textWidth(text, ARC_FONT, isEnd) });
  });
  if (word.length) endWord();
  const step = line > 0 ? 30 : 21;
  const all = placed.map((token) => ({ ...token, y: RISE + ARC_FONT + token.line * step }));
  const [from, to] = [query, key].map((i) => all.find(({ position }) => position === i));
  // Across lines, an arc would run through the text: its ends are marked instead.
  const paths = from && to && from !== to && from.line === to.line ? arrowPaths(from, to) : [];
  return { tokens: all, height: RISE + ARC_FONT + line * step + 12, paths };
}

function arrowPaths(from: PlacedToken, to: PlacedToken): string[] {
  const top = ({ x, y, width }: PlacedToken) =>
    [x + width / 2, y - ARC_FONT - 1].map((value) => Math.round(value * 100) / 100);
  const [[x1, y1], [x2, y2]] = [top(from), top(to)];
  const rise = Math.min(from.line > 0 ? RISE - 6 : RISE + 3, 8 + Math.abs(x2 - x1) * 0.06);
  const high = Math.round((Math.min(y1, y2) - rise) * 100) / 100;
  const head = `M${x2 - 3.2} ${y2 - 5} L${x2} ${y2} L${x2 + 3.2} ${y2 - 5}`;
  return [arcPath([x1, y1], [x2, y2], high), head];
}
