// What is on the screen as scenes, for files: the text with its arcs, and the chosen head.

import { printed } from "../data/axis.ts";
import { neuronOrder, neuronsOf } from "../data/neurons.ts";
import { shortWeight } from "../data/number.ts";
import { tellingLink, titleOf } from "../data/words.ts";
import { columnsOf, lineMarks, rowY } from "../layout/lines.ts";
import { heatMark, matrixLayout, matrixMarks, wholeWindow } from "../layout/matrix.ts";
import { neuronLayout, neuronMarks } from "../layout/neurons.ts";
import type { Mark, Scene } from "../layout/scene.ts";
import { widestEms } from "../paint/canvas.ts";
import { cssOf, mix } from "../paint/color.ts";
import { headName } from "../state/selection.ts";
import type { Session, Side } from "../state/session.ts";
import { headColor, lookAt, roleHere } from "./look.ts";
import { type Captioned, sheet } from "./saving.ts";

/** The chosen head of every input, side by side under its title. */
export function sceneOf(session: Session): Scene {
  const theme = session.theme.peek();
  const scenes: Captioned[] = session.sides
    .peek()
    .map((side) => ({ scene: sideScene(session, side), caption: captionOf(side) }));
  return sheet(headTitle(session), [{ title: "", scenes }], theme);
}

function captionOf(side: Side): string {
  return [side.letter, side.base.title, side.base.changed].filter(Boolean).join(" · ");
}

/** The title of the head as plain text. */
export function headTitle(session: Session): string {
  const selection = session.selection.peek();
  const lead = session.lead.peek();
  const { role, share } = roleHere(lead, selection);
  const links = session.sides.peek().map((side) => {
    const matrix = session.matrix(side);
    const { row } = session.focus(side);
    return matrix && tellingLink(matrix, side.lens.rows, side.lens.columns, row, role);
  });
  const said = titleOf(role, share, links, session.focus(lead).row >= 0);
  const parts = said.links.map(
    ({ from, to, weight }) =>
      `${printed(from.label)} → ${printed(to.label)} ${shortWeight(weight)}`,
  );
  const { sign } = lookAt(session, lead, selection);
  const words = said.words.map((word) => `“${word}”`).join(" and ");
  const start = words ? `${said.lead} ${words}:` : said.lead;
  return `${sign} ${headName(selection)} ${start} ${parts.join(", ")}`.trim();
}

function sideScene(session: Session, side: Side): Scene {
  const theme = session.theme.peek();
  const tab = session.tab.peek();
  const matrix = session.matrix(side);
  const color = headColor(session, side);
  const focus = session.focus(side);
  const { rows, columns: keys } = side.lens;
  const background = theme.tone.paper;
  const ems = (entries: typeof rows) =>
    widestEms(
      entries.map(({ label }) => printed(label)),
      true,
    );
  if (!matrix) return { width: 200, height: 40, background, marks: [] };
  if (tab === "matrix") {
    const cell = Math.max(3, Math.min(24, 900 / Math.max(rows.length, keys.length)));
    const labels = Math.min(120, Math.max(ems(rows), ems(keys)) * 13 + 14);
    const size = {
      width: labels + keys.length * cell + 40,
      height: labels + rows.length * cell + 20,
    };
    const layout = matrixLayout(size, rows.length, keys.length, Math.max(ems(rows), ems(keys)));
    const heat = heatMark(matrix, { x: 0, y: 0, width: 0, height: 0 }, theme, color);
    const none = { row: -1, column: -1 };
    const marks = matrixMarks(
      { heat, rows, keys, focus, pinned: none },
      wholeWindow(layout),
      layout,
      theme,
    );
    return { ...size, background, marks };
  }
  const vectors = tab === "neurons" ? session.vectors(side)?.value : null;
  const planes = side.block.planes[session.layerIndex(side.block)]?.value;
  if (vectors && planes && focus.row >= 0) {
    const query = rows[focus.row].positions[0];
    const { head } = session.selection.peek();
    const n = side.block.keyTokens.texts.length;
    const recorded = planes.weights(head).subarray(query * n, (query + 1) * n);
    const neurons = neuronsOf(side.block, vectors, head, query, recorded);
    const room = { width: 860, height: 26 * keys.length };
    const layout = neuronLayout(room, keys.length, { rows: ems(rows), keys: ems(keys) }, 20);
    const chosen = focus.column >= 0 ? keys[focus.column].positions[0] : -1;
    const order = neuronOrder(neurons, "number");
    const marks = neuronMarks({ neurons, rows, keys, chosen, order, color }, layout, theme);
    return { width: layout.width, height: layout.height, background, marks };
  }
  return linesScene(session, side, { rowEms: ems(rows), columnEms: ems(keys) });
}

function linesScene(
  session: Session,
  side: Side,
  ems: { rowEms: number; columnEms: number },
): Scene {
  const theme = session.theme.peek();
  const matrix = session.matrix(side)!;
  const { filter } = session.selection.peek();
  const { rows, columns: keys } = side.lens;
  const focus = session.focus(side);
  const color = headColor(session, side);
  const count = Math.max(rows.length, keys.length);
  const columns = columnsOf({
    width: 620,
    height: 28 * count,
    rows: rows.length,
    columns: keys.length,
    ...ems,
    least: 16,
  });
  const input = {
    matrix,
    rows,
    keys,
    focus,
    above: filter.above,
    top: filter.top,
    dims: filter.specials === "dimmed",
    color,
    dashed: session.isOff(session.selection.peek()),
  };
  const marks: Mark[] = lineMarks(input, columns, theme);
  const read = focus.row >= 0 ? session.row(side, focus.row)!.weights : null;
  const label = (entry: (typeof rows)[number], row: number, isReader: boolean) => {
    const y = rowY(columns, row);
    const weight = isReader ? null : (read?.[row] ?? null);
    const x = isReader ? columns.labels.left : columns.labels.right + 4;
    const text = printed(entry.label);
    if (weight !== null && weight >= Math.max(0.005, filter.above)) {
      const width = widestEms([text], true) * columns.fontSize + 10;
      const fill = cssOf(mix(theme.rgb.paper, color, 0.07 + 0.5 * weight ** 0.7));
      const height = columns.rowHeight - 4;
      marks.push({ kind: "rect", x: x - 5, y: y - height / 2, width, height, fill });
      marks.push({
        kind: "text",
        x: columns.numbers.x,
        y: y + 4,
        text: shortWeight(weight),
        size: 11.5,
        anchor: "start",
        fill: theme.tone.ink,
      });
    }
    marks.push({
      kind: "text",
      x,
      y: y + columns.fontSize * 0.35,
      text,
      size: columns.fontSize,
      serif: true,
      bold: isReader && row === focus.row,
      anchor: isReader ? "end" : "start",
      fill: entry.special ? theme.tone.soft : theme.tone.ink,
    });
  };
  rows.forEach((entry, row) => {
    label(entry, row, true);
  });
  keys.forEach((entry, row) => {
    label(entry, row, false);
  });
  return { width: columns.width, height: columns.height, background: theme.tone.paper, marks };
}
