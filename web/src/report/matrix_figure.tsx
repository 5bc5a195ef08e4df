// Heat maps of labels × layers: tags and relations, all models on one scale.

import type { MatrixFigure } from "../../generated/report.ts";
import { axisNumber, everyNth, withInterval } from "../data/format.ts";
import { fitted, textWidth } from "../paint/painter.ts";
import { shade } from "../paint/roles.ts";
import type { Row } from "../view/download.ts";
import { FigureFrame } from "./figure_frame.tsx";
import * as svg from "./marks.tsx";
import { type ReportContext, useReport } from "./report_context.ts";

const ROW = 15;
const TOP = 34;
const GAP = 26;

export function MatrixFigureView({ figure }: { figure: MatrixFigure }) {
  const context = useReport();
  const draw = (width: number) => drawMatrix(figure, context, width);
  return <FigureFrame figure={figure} csv={() => matrixRows(figure, context)} draw={draw} />;
}

function drawMatrix(
  { labels, panels, share, title }: MatrixFigure,
  context: ReportContext,
  width: number,
) {
  const longest = Math.max(...labels.map((label) => textWidth(label, 11)));
  const left = Math.min(longest + 10, width * 0.32);
  const total = panels.reduce((sum, panel) => sum + panel.x.length, 0);
  const together = (width - left - (panels.length - 1) * GAP) / total;
  const isRow = together >= 9;
  const values = panels.flatMap(({ value }) => value.flatMap((row) => row ?? []));
  const most = Math.max(0, ...values.map((number) => number ?? 0)) || 1;
  const height = TOP + labels.length * ROW + 22;
  const spots = new svg.Spots(context);
  let [x, y] = [left, 0];
  const maps = panels.map((panel, i) => {
    const name = context.titleOf(panel.subject);
    const cell = Math.min(isRow ? together : (width - left) / panel.x.length, 26);
    const room = isRow ? Math.max(cell * panel.x.length + GAP - 6, 60) : width - left;
    const step = everyNth(panel.x.length, (panel.x.length * cell) / 18);
    const place = svg.shift(x, y);
    if (isRow) x += panel.x.length * cell + GAP;
    else y += height;
    return (
      <g key={i} transform={place}>
        <svg.Heading x={0} y={12} text={fitted(name, 12.6, room)} />
        {panel.x.map((layer, column) =>
          column % step ? null : (
            <svg.Tick key={layer} x={(column + 0.5) * cell} y={TOP - 6} text={String(layer)} />
          ),
        )}
        {labels.map((label, row) => {
          const top = TOP + row * ROW;
          const text = fitted(label, 11, left - 10);
          return (
            <g key={label}>
              {(!isRow || i === 0) && (
                <svg.Label x={-8} y={top + ROW / 2} text={text} anchor="end" fill="ink" isCentral />
              )}
              {panel.x.map((layer, column) => {
                const value = panel.value[row]?.[column] ?? null;
                const box = {
                  x: column * cell + 0.5,
                  y: top + 0.5,
                  width: cell - 1,
                  height: ROW - 1,
                };
                const [low, high] = [panel.low[row]?.[column], panel.high[row]?.[column]];
                const spot = spots.add("cell", {
                  heading: `${label}, layer ${layer}`,
                  rows: [[name, withInterval(value, low, high, share)]],
                  panel: i,
                  x: column * cell,
                  y: top,
                });
                const fill = value === null ? "var(--raised)" : shade(Math.sqrt(value / most));
                return <rect key={layer} {...svg.round(box)} rx={1.5} fill={fill} {...spot} />;
              })}
            </g>
          );
        })}
      </g>
    );
  });
  const ends = [0, Number(most.toPrecision(3))].map((value) => axisNumber(value, share));
  const below = (isRow ? height : y) - 8;
  return (
    <svg.Canvas width={width} height={below + 38} label={title} spots={spots}>
      {maps}
      <svg.ColorScale x={left} y={below} fill={(part) => shade(Math.sqrt(part))} ends={ends} />
    </svg.Canvas>
  );
}

function matrixRows({ labels, panels }: MatrixFigure, context: ReportContext): Row[] {
  const rows: Row[] = [["model", "label", "layer", "value", "low", "high"]];
  for (const { subject, x, value, low, high } of panels) {
    labels.forEach((label, row) => {
      x.forEach((layer, column) => {
        const numbers = [value, low, high].map((table) => table[row]?.[column] ?? null);
        rows.push([context.titleOf(subject), label, layer, ...numbers]);
      });
    });
  }
  return rows;
}
