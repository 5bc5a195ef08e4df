// The chosen head as a scene, for files: its lines, its matrix or its neurons, of every input.

import { type Entry, printed } from "../data/axis.ts";
import type { Matrix } from "../data/lens.ts";
import { neuronOrder } from "../data/neurons.ts";
import { shortWeight } from "../data/number.ts";
import { columnsOf, lineMarks, rowY } from "../layout/lines.ts";
import { heatOf, matrixLayout, matrixMarks, wholeWindow } from "../layout/matrix.ts";
import { neuronLayout, neuronMarks } from "../layout/neurons.ts";
import type { Mark, Scene } from "../layout/scene.ts";
import { labelEms, widestEms } from "../paint/canvas.ts";
import { cssOf } from "../paint/color.ts";
import { headName } from "../state/selection.ts";
import type { Session, Side } from "../state/session.ts";
import { groundOf, headColor, linesInput, lookAt, neuronsAt, sayingOf } from "./look.ts";
import { type Drawn, sheet } from "./saving.ts";

/** The chosen head of every input, side by side under its title. */
export function sceneOf(session: Session): Scene {
  const scenes = session.sides.peek().map((side) => ({
    scene: sideScene(session, side),
    caption: [side.letter, side.base.title, side.base.changed].filter(Boolean).join(" · "),
  }));
  return sheet(headTitle(session), scenes, session.theme.peek());
}

/** The title of the head as plain text. */
function headTitle(session: Session): string {
  const selection = session.selection.peek();
  const said = sayingOf(session);
  const parts = said.links.map(
    ({ from, to, weight }) =>
      `${printed(from.label)} → ${printed(to.label)} ${shortWeight(weight)}`,
  );
  const { sign } = lookAt(session, session.lead.peek(), selection);
  const words = said.words.map((word) => `“${word}”`).join(" and ");
  const start = words ? `${said.lead} ${words}:` : said.lead;
  return `${sign} ${headName(selection)} ${start} ${parts.join(", ")}`.trim();
}

function sideScene(session: Session, side: Side): Drawn {
  const tab = session.tab.peek();
  const matrix = session.matrix(side);
  if (!matrix) return { width: 200, height: 40, marks: [] };
  if (tab === "matrix") return matrixScene(session, side, matrix);
  const neurons = tab === "neurons" ? neuronScene(session, side) : null;
  return neurons ?? linesScene(session, side, matrix);
}

function matrixScene(session: Session, side: Side, matrix: Matrix): Drawn {
  const theme = session.theme.peek();
  const { rows, columns: keys } = side.lens;
  const ems = Math.max(labelEms(rows), labelEms(keys));
  const cell = Math.max(3, Math.min(24, 900 / Math.max(rows.length, keys.length)));
  const labels = Math.min(120, ems * 13 + 14);
  const size = {
    width: labels + keys.length * cell + 40,
    height: labels + rows.length * cell + 20,
  };
  const layout = matrixLayout(size, rows.length, keys.length, ems);
  const heat = heatOf(matrix, theme, headColor(session, side));
  const pinned = { row: -1, column: -1 };
  const input = { heat, rows, keys, focus: session.focus(side), pinned };
  return { ...size, marks: matrixMarks(input, wholeWindow(layout), layout, theme) };
}

/** Null without a word that is looked at, or without its vectors. */
function neuronScene(session: Session, side: Side): Drawn | null {
  const { rows, columns: keys } = side.lens;
  const { row, column } = session.focus(side);
  const neurons = row < 0 ? null : neuronsAt(session, side, rows[row].positions[0]);
  if (!neurons) return null;
  const room = { width: 860, height: 26 * keys.length };
  const layout = neuronLayout(
    room,
    keys.length,
    { rows: labelEms(rows), keys: labelEms(keys) },
    20,
  );
  const chosen = column >= 0 ? keys[column].positions[0] : -1;
  const order = neuronOrder(neurons, "number");
  const input = { neurons, rows, keys, chosen, order, color: headColor(session, side) };
  const marks = neuronMarks(input, layout, session.theme.peek());
  return { width: layout.width, height: layout.height, marks };
}

function linesScene(session: Session, side: Side, matrix: Matrix): Drawn {
  const theme = session.theme.peek();
  const { rows, columns: keys } = side.lens;
  const focus = session.focus(side);
  const columns = columnsOf({
    width: 620,
    height: 28 * Math.max(rows.length, keys.length),
    rows: rows.length,
    columns: keys.length,
    rowEms: labelEms(rows),
    columnEms: labelEms(keys),
    least: 16,
  });
  const marks: Mark[] = lineMarks(linesInput(session, side, matrix), columns, theme);
  const read = session.row(side, focus.row)?.weights;
  const label = (entry: Entry, row: number, isReader: boolean) => {
    const y = rowY(columns, row);
    const weight = isReader ? null : (read?.[row] ?? null);
    const ground = groundOf(session, side, weight);
    const x = isReader ? columns.labels.left : columns.labels.right + 4;
    const text = printed(entry.label);
    if (weight !== null && ground) {
      const width = widestEms([text], true) * columns.fontSize + 10;
      const height = columns.rowHeight - 4;
      marks.push({ kind: "rect", x: x - 5, y: y - height / 2, width, height, fill: cssOf(ground) });
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
  for (const [row, entry] of rows.entries()) label(entry, row, true);
  for (const [row, entry] of keys.entries()) label(entry, row, false);
  return { width: columns.width, height: columns.height, marks };
}
