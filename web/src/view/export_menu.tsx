// Export menu: drawing, picture, tables, link; and the scene of the chosen head.

import { indexOfHead } from "../data/effects.ts";
import type { Matrix } from "../data/filtered_block.ts";
import { shortWeight } from "../data/format.ts";
import { neuronOrder } from "../data/neurons.ts";
import { type Entry, printed } from "../data/tokens.ts";
import { columnsOf, lineMarks, rowY } from "../layout/lines_layout.ts";
import {
  heatOf,
  matrixLayout,
  matrixMarks,
  shorten,
  wholeWindow,
} from "../layout/matrix_layout.ts";
import { neuronLayout, neuronMarks } from "../layout/neurons_layout.ts";
import { type Mark, rect, type Scene } from "../layout/scene.ts";
import { labelEms, widestEms } from "../paint/painter.ts";
import { cssOf } from "../paint/theme.ts";
import { headCode, headName } from "../state/selection.ts";
import type { Session, Side } from "../state/session.ts";
import { Button, copyText } from "./controls.tsx";
import {
  copyOf,
  csvText,
  type Drawing,
  type Drawn,
  download,
  pngFile,
  type Row,
  sheet,
  svgFile,
} from "./download.ts";
import { useExplorer } from "./explorer_context.ts";
import { headCard } from "./head_card.ts";
import { headEffects } from "./head_values.ts";
import {
  asideText,
  drawnHeads,
  groundOf,
  headColor,
  linesInput,
  matrixScale,
  neuronsAt,
  roleLookOf,
  titleParts,
} from "./selected_head.ts";

export function ExportMenu() {
  const explorer = useExplorer();
  const { session } = explorer;
  const model = session.lead.value.base.model.replace(/[^\w.-]+/g, "-");
  const heads = (session.several ?? [session.selection.value]).map(headCode).join("-");
  const name = `headscope-${model}-${heads}`;
  const save = async (file: Blob | Promise<Blob>, as: string) => download(await file, as);
  const table = (rows: readonly Row[]) =>
    new Blob([csvText(rows, "\n")], { type: "text/csv;charset=utf-8" });
  const drawing = (): Drawing => {
    const wires = explorer.root.querySelector<SVGSVGElement>(".wires-svg");
    const part = session.wires.peek();
    if (!wires || !part) return svgFile(sceneOf(session));
    const title = `${part.model} · wires on ${part.task}, shares of the gap · ${part.holds}`;
    return copyOf(wires, title, session.theme.peek());
  };
  const choice = (label: string, act: () => Promise<unknown>) => (
    <Button
      role="menuitem"
      onClick={() => {
        explorer.close();
        void act();
      }}
    >
      {label}
    </Button>
  );
  return (
    <div class="pop menu" role="menu" aria-label="Export">
      {choice("Drawing (SVG)", () => save(drawing().file, `${name}.svg`))}
      {choice("Picture (PNG)", () => save(pngFile(drawing()), `${name}.png`))}
      {choice("Card of this head (PNG)", () =>
        save(pngFile(svgFile(headCard(session))), `${name}-card.png`),
      )}
      {choice("Weights of this head (CSV)", () => save(table(weightRows(session)), `${name}.csv`))}
      {choice("All heads: roles, effects (CSV)", () =>
        save(table(headRows(session)), `headscope-${model}-heads.csv`),
      )}
      {choice("Copy link", () => copyText(location.href))}
      {choice("Copy as a story step", () => copyText(`("", "${session.store.step}"),`))}
    </div>
  );
}

/** Visible weights of the chosen head, a row per pair. */
function weightRows(session: Session): Row[] {
  const { layer, head } = session.selection.peek();
  const rows: Row[] = [
    ["input", "layer", "head", "query", "query_text", "key", "key_text", "weight"],
  ];
  for (const side of session.sides.peek()) {
    const matrix = session.matrix(side);
    if (!matrix) continue;
    side.filtered.rows.forEach((from, r) => {
      side.filtered.columns.forEach((to, c) => {
        const weight = matrix.weights[r * matrix.columns + c];
        rows.push([
          ...[side.letter || "A", layer, head],
          ...[from.positions[0], printed(from.label), to.positions[0], printed(to.label)],
          Number.isNaN(weight) ? null : Number(weight.toFixed(5)),
        ]);
      });
    });
  }
  return rows;
}

function headRows(session: Session): Row[] {
  const side = session.lead.peek();
  const { block } = side;
  const names = Object.keys(block.statistics);
  const effects = headEffects(session, side);
  const rows: Row[] = [
    ["layer", "head", "name", "role", "share", ...names, ...(effects ? ["effect"] : [])],
  ];
  block.layers.forEach((layer, layerIndex) => {
    for (let head = 0; head < block.heads; head++) {
      if (!block.has(layerIndex, head)) continue;
      const { role, share } = session.roles(side)[layerIndex][head];
      const effect = effects?.all[indexOfHead(effects.all, layerIndex, head)];
      rows.push([
        ...[layer, head, headName({ layer, head }), role, share],
        ...names.map((name) => block.statistics[name][layerIndex][head]),
        ...(effects ? [effect?.value ?? null] : []),
      ]);
    }
  });
  return rows;
}

/** Draw the chosen head of every input, side by side under its title. */
function sceneOf(session: Session): Scene {
  const scenes = session.sides.peek().map((side) => {
    const { model, title, changed } = side.base;
    const about = [side.letter, model, shorten(title, 90), changed];
    return { scene: sideScene(session, side), caption: about.filter(Boolean).join(" · ") };
  });
  return sheet(headTitle(session), scenes, session.theme.peek());
}

function headTitle(session: Session): string {
  const selection = session.selection.peek();
  const title = titleParts(session);
  const parts = title.links.map(
    ({ from, to, weight, letter }) =>
      `${letter && `${letter}: `}${printed(from.label)} → ${printed(to.label)} ${shortWeight(weight)}`,
  );
  const look = roleLookOf(session, session.lead.peek(), selection);
  const symbol = asideText(session) ? "" : look.symbol;
  const several = session.several?.map(headName).join(", ");
  if (several) return `${several}${selection.mean ? " (mean)" : ""}`;
  return `${symbol} ${headName(selection)} ${title.lead} ${parts.join(", ")}`.trim();
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
  const { rows, columns: keys } = side.filtered;
  const ems = Math.max(labelEms(rows), labelEms(keys));
  const cell = Math.max(3, Math.min(24, 900 / Math.max(rows.length, keys.length)));
  const labels = Math.min(120, ems * 13 + 14);
  const [width, height] = [labels + keys.length * cell + 40, labels + rows.length * cell + 20];
  const size = { width, height };
  const layout = matrixLayout(size, rows.length, keys.length, ems);
  const full = matrixScale(session)?.full ?? 1;
  const heat = heatOf(matrix, theme, headColor(session, side), { full });
  const pinned = { row: -1, column: -1 };
  const input = { heat, rows, keys, focus: session.focus(side), pinned };
  return { ...size, marks: matrixMarks(input, wholeWindow(layout), layout, theme) };
}

/** Null without a word in focus, or without its vectors. */
function neuronScene(session: Session, side: Side): Drawn | null {
  const { rows, columns: keys } = side.filtered;
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
  const { ink, soft } = theme.tone;
  const { rows, columns: keys } = side.filtered;
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
  const heads = drawnHeads(session, side);
  const marks: Mark[] = heads.flatMap(({ color, matrix: own }) => {
    const input = linesInput(session, side, own ?? matrix);
    return lineMarks({ ...input, color, isAlone: heads.length > 1 }, columns, theme);
  });
  const edge = (entry: Entry, row: number, x: number) => {
    if (entry.special) return;
    const isB = side.letter ? side.letter === "B" : entry.segment === 1;
    const fill = isB ? theme.tone.bedge : theme.tone.aedge;
    const y = rowY(columns, row) - columns.rowHeight / 2;
    marks.push(rect(x, y, 4, columns.rowHeight, fill));
  };
  for (const [row, entry] of rows.entries()) edge(entry, row, columns.lines.left - 4);
  for (const [row, entry] of keys.entries()) edge(entry, row, columns.lines.right);
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
      marks.push(rect(x - 5, y - height / 2, width, height, cssOf(ground)));
      const number = { x: columns.numbers.x, y: y + 4, text: shortWeight(weight), size: 11.5 };
      marks.push({ kind: "text", ...number, anchor: "start", fill: ink });
    }
    const place = { x, y: y + columns.fontSize * 0.35, text, size: columns.fontSize, serif: true };
    const fill = entry.special ? soft : ink;
    const bold = isReader && row === focus.row;
    marks.push({ kind: "text", ...place, bold, fill, anchor: isReader ? "end" : "start" });
  };
  for (const [row, entry] of rows.entries()) label(entry, row, true);
  for (const [row, entry] of keys.entries()) label(entry, row, false);
  return { width: columns.width, height: columns.height, marks };
}
