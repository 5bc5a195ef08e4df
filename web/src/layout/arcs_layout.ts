// Attention over a line of words, as arcs.

import { type Focus, type Lens, type Matrix, rowWeights } from "../data/filtered_block.ts";
import { shortWeight } from "../data/format.ts";
import type { Link } from "../data/head_summary.ts";

/** Where a word stands: its middle, its top, its width. */
export interface Place {
  readonly x: number;
  readonly y: number;
  readonly width: number;
}

export interface Arc {
  readonly from: number;
  readonly to: number;
  readonly path: string;
  readonly width: number;
  readonly opacity: number;
  /** A number where the arc ends; empty for the weaker ones. */
  readonly label: string;
  readonly labelX: number;
  /** On which side of the arc's end the number stands: outside. */
  readonly anchor: "start" | "end";
}

interface ArcsInput {
  readonly matrix: Matrix;
  readonly lens: Lens;
  readonly focus: Focus;
  /** The row that is looked at, as exactly as it is known. */
  readonly read: Float32Array | null;
  readonly above: number;
  readonly isCross: boolean;
}

const LABELED = 2;
/** Words whose tops differ by less stand in one line. */
const LINE = 18;
/** Without a word that is looked at, words up to this many show their strongest link. */
const CROWDED = 32;

/** Arcs between words of one line; across lines there is shading instead. */
export function arcsOf(input: ArcsInput, places: ReadonlyMap<string, Place>): Arc[] {
  const { lens, focus } = input;
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
      const isStrong = isLooked && i >= feet.length - LABELED && link.weight >= 0.1 && !isItself;
      return {
        from: lens.rows.indexOf(link.from),
        to: lens.columns.indexOf(link.to),
        path: `M${x1} ${y}C${x1} ${y - rise * 1.33} ${x2} ${y - rise * 1.33} ${x2} ${y}`,
        width: isLooked ? 0.8 + 4.4 * link.weight : 0.7 + 1.6 * link.weight,
        opacity: isLooked ? 0.3 + (0.7 * link.weight) / most : 0.15 + 0.5 * link.weight,
        label: isStrong ? shortWeight(link.weight) : "",
        labelX: isLeft ? Math.max(24, end.x - 6) : end.x + 6,
        anchor: isLeft ? "end" : "start",
      };
    });
}

function linksOf({ matrix, lens, focus, read, above }: ArcsInput): Link[] {
  const { rows, columns } = lens;
  const links: Link[] = [];
  if (focus.row >= 0 && read) {
    columns.forEach((to, c) => {
      if (read[c] >= above) links.push({ from: rows[focus.row], to, weight: read[c] });
    });
    return links;
  }
  rows.forEach((from, r) => {
    const own = rowWeights(matrix, r);
    if (focus.column >= 0) {
      const weight = own[focus.column];
      if (weight >= above) links.push({ from, to: columns[focus.column], weight });
      return;
    }
    if (rows.length > CROWDED || from.special) return;
    let best = 0;
    for (let c = 1; c < own.length; c++) if (own[c] > own[best]) best = c;
    const isTelling = own[best] >= Math.max(above, 0.2) && !columns[best]?.special && best > 0;
    if (isTelling) links.push({ from, to: columns[best], weight: own[best] });
  });
  return links;
}
