// The selected head: role, color, title, and the inputs of its drawings.

import type { RolePart } from "../../generated/payload.ts";
import { type Matrix, rowWeights } from "../data/filtered_block.ts";
import { NO_ROLE } from "../data/head_numbers.ts";
import { isSink, scaleOf, strongestLink, type TitleParts, titleOf } from "../data/head_summary.ts";
import { type Neurons, neuronsOf } from "../data/neurons.ts";
import { named, rowOf } from "../data/tokens.ts";
import type { LinesInput } from "../layout/lines_layout.ts";
import { headHue, type RoleLook, roleColor, roleLook } from "../paint/roles.ts";
import { mix, type Rgb } from "../paint/theme.ts";
import type { HeadId } from "../state/selection.ts";
import type { Session, Side } from "../state/session.ts";

function roleInText(side: Side, id: HeadId): RolePart {
  const { heads, here: inText } = side.baseFiltered.block.roles;
  return (inText ?? heads)[layerIndex(side, id)]?.[id.head] ?? NO_ROLE;
}

/** RolePart of a head over the corpus, if it differs from that in this text. */
export function corpusRole(side: Side, id: HeadId): RolePart | null {
  const { heads, here: inText } = side.baseFiltered.block.roles;
  const over = inText && heads[layerIndex(side, id)]?.[id.head];
  return over && over.role !== roleInText(side, id).role ? over : null;
}

/** Name of a head's role; both if the corpus and this text differ. */
export function roleText(side: Side, id: HeadId): string {
  const name = roleLook(roleInText(side, id).role).name;
  const over = corpusRole(side, id);
  return over ? `${name} in this text, ${roleLook(over.role).name} over the corpus` : name;
}

export function roleLookOf(session: Session, side: Side, id: HeadId): RoleLook {
  return roleLook(session.roles(side)[layerIndex(side, id)]?.[id.head]?.role ?? null);
}

/** Color of the chosen head: its role's, without one while roles are hidden. */
export function headColor(session: Session, side: Side): Rgb {
  const { scheme, rgb } = session.theme.value;
  if (session.exercise.isHidden.value) return rgb.soft;
  return roleColor(roleLookOf(session, side, session.selection.value), scheme);
}

interface DrawnHead {
  readonly id: HeadId;
  readonly color: Rgb;
  readonly matrix: Matrix | null;
  /** Weights of the row in focus. */
  readonly read: Float32Array | null;
}

/** Heads that are drawn: several in hues of their own, or one (or a mean) in the role's color. */
export function drawnHeads(session: Session, side: Side): DrawnHead[] {
  const { row } = session.focus(side);
  const several = session.overlaid;
  if (!several) {
    const read = row >= 0 ? (session.row(side, row)?.weights ?? null) : null;
    const { layer, head } = session.selection.value;
    return [
      { id: { layer, head }, color: headColor(session, side), matrix: session.matrix(side), read },
    ];
  }
  return several.map((id, i) => {
    const matrix = session.single(side, id);
    const read = matrix && row >= 0 ? rowWeights(matrix, row) : null;
    return { id, color: headHue(i, session.theme.value.scheme), matrix, read };
  });
}

function layerIndex(side: Side, { layer }: HeadId): number {
  return Math.max(0, side.block.layers.indexOf(layer));
}

/** Title of the head with its strongest links. It follows the pinned word, not the hovered one,
 *  so that its length stays the same. */
export function titleParts(session: Session): TitleParts {
  const lead = session.lead.value;
  const selection = session.selection.value;
  const { role, share } = roleInText(lead, selection);
  const pinned = (side: Side) =>
    rowOf(side.filtered.rows, session.place(side, selection.word, "query"));
  const links = session.sides.value.map((side) => {
    const matrix = session.matrix(side);
    const { rows, columns } = side.filtered;
    const link = matrix && strongestLink(matrix, rows, columns, pinned(side), role);
    return link && { ...link, letter: side.letter };
  });
  const title = titleOf(role, share, links, pinned(lead) >= 0);
  // Without whole rows, no role was looked for.
  return lead.block.top && role === null
    ? { ...title, lead: title.lead.replace("no single role; ", "") }
    : title;
}

/** Role of a sink whose title is about what the pinned word reads, so that its badge would
 *  contradict the title; empty for others. */
export function asideText(session: Session): string {
  const { id, name } = roleLookOf(session, session.lead.value, session.selection.value);
  const { lead, links } = titleParts(session);
  if (!isSink(id) || !links[0] || lead.startsWith("attention sink")) return "";
  return `attention sink (${name}) for most words, not for “${named(links[0].from)}”`;
}

const scales = new WeakMap<Matrix, { full: number; most: number }>();
/** Number of tokens above which single weights do not set the scale of a matrix. */
const MANY = 100;

/** Weight of full color in a matrix: the largest off the first column, of long texts the
 *  99.9 % quantile; and the largest weight of all. One scale for two inputs. */
export function matrixScale(session: Session): { full: number; most: number } | null {
  const all = session.sides.value.flatMap((side) => {
    const matrices = session.overlaid
      ? session.overlaid.map((id) => session.single(side, id))
      : [session.matrix(side)];
    return matrices.map((matrix) => (matrix ? scaleOfMatrix(matrix) : null));
  });
  const known = all.filter((scale) => scale !== null);
  if (known.length < all.length) return null;
  return {
    full: Math.max(...known.map(({ full }) => full)),
    most: Math.max(...known.map(({ most }) => most)),
  };
}

function scaleOfMatrix(matrix: Matrix): { full: number; most: number } {
  const known = scales.get(matrix);
  if (known) return known;
  const { rows, columns, weights } = matrix;
  const off: number[] = [];
  let most = 0;
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++) {
      const weight = weights[r * columns + c];
      if (weight > most) most = weight;
      if (c > 0 && r > 0 && weight > 0) off.push(weight);
    }
  }
  const sorted = Float32Array.from(off).sort();
  const place = columns > MANY ? Math.floor((sorted.length - 1) * 0.999) : sorted.length - 1;
  const scale = { full: sorted[place] || most || 1, most };
  scales.set(matrix, scale);
  return scale;
}

export function linesInput(session: Session, side: Side, matrix: Matrix): LinesInput {
  const { filter } = session.selection.value;
  const focus = session.focus(side);
  const read = focus.row >= 0 ? rowWeights(matrix, focus.row) : null;
  return {
    scale: read ? scaleOf(read) : 1,
    matrix,
    rows: side.filtered.rows,
    keys: side.filtered.columns,
    focus,
    above: filter.above,
    top: filter.top,
    dims: filter.specials === "dimmed",
    color: headColor(session, side),
    dashed: session.edits.isOff(session.selection.value),
  };
}

/** Background of a word by its weight; null if it is too small to draw. */
export function groundOf(session: Session, side: Side, weight: number | null): Rgb | null {
  const least = Math.max(0.005, session.selection.value.filter.above);
  if (weight === null || !(weight >= least)) return null;
  const { rgb } = session.theme.value;
  return mix(rgb.paper, headColor(session, side), 0.07 + 0.5 * Math.min(1, weight) ** 0.7);
}

/** Vectors of a query; null while the layer is unpacked, or without vectors. */
export function neuronsAt(session: Session, side: Side, query: number): Neurons | null {
  const { block } = side;
  const { head } = session.selection.value;
  const vectors = session.vectors(side)?.value;
  const planes = block.planes[session.layerIndex(block)]?.value;
  if (!vectors || !planes) return null;
  return neuronsOf(block, vectors, head, query, planes.row(head, query));
}
