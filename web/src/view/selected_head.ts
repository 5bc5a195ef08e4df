// The selected head: role, color, title, and the inputs of its drawings.

import type { RolePart } from "../../generated/payload.ts";
import type { Matrix } from "../data/filtered_block.ts";
import { strongestLink, type TitleParts, titleOf } from "../data/head_summary.ts";
import { type Neurons, neuronsOf } from "../data/neurons.ts";
import { rowOf } from "../data/tokens.ts";
import type { LinesInput } from "../layout/lines_layout.ts";
import { type RoleLook, roleColor, roleLook } from "../paint/roles.ts";
import { mix, type Rgb } from "../paint/theme.ts";
import type { HeadId } from "../state/selection.ts";
import type { Session, Side } from "../state/session.ts";

const NONE: RolePart = { role: null, share: null, queries: 0 };

function roleInText(side: Side, id: HeadId): RolePart {
  const { heads, here: inText } = side.baseFiltered.block.roles;
  return (inText ?? heads)[layerIndex(side, id)]?.[id.head] ?? NONE;
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
  return over ? `${roleLook(over.role).name} over the corpus; here: ${name}` : name;
}

export function roleLookOf(session: Session, side: Side, id: HeadId): RoleLook {
  return roleLook(session.roles(side)[layerIndex(side, id)]?.[id.head]?.role ?? null);
}

export function headColor(session: Session, side: Side): Rgb {
  const look = roleLookOf(session, side, session.selection.value);
  return roleColor(look, session.theme.value.scheme);
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
    return (
      matrix && strongestLink(matrix, side.filtered.rows, side.filtered.columns, pinned(side), role)
    );
  });
  return titleOf(role, share, links, pinned(lead) >= 0);
}

export function linesInput(session: Session, side: Side, matrix: Matrix): LinesInput {
  const { filter } = session.selection.value;
  return {
    matrix,
    rows: side.filtered.rows,
    keys: side.filtered.columns,
    focus: session.focus(side),
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
  return mix(session.theme.value.rgb.paper, headColor(session, side), 0.07 + 0.5 * weight ** 0.7);
}

/** Vectors of a query; null while the layer is unpacked, or without vectors. */
export function neuronsAt(session: Session, side: Side, query: number): Neurons | null {
  const { block } = side;
  const { head } = session.selection.value;
  const vectors = session.vectors(side)?.value;
  const planes = block.planes[session.layerIndex(block)]?.value;
  if (!vectors || !planes) return null;
  const n = block.keyTokens.texts.length;
  const recorded = planes.weights(head).subarray(query * n, (query + 1) * n);
  return neuronsOf(block, vectors, head, query, recorded);
}
