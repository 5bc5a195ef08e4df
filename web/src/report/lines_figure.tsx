// Small multiples of lines by layer, with bands for intervals and dashed baselines.

import type { LinePanel, LinesFigure, Line as Series } from "../../generated/report.ts";
import {
  axisNumber,
  axisTitle,
  everyNth,
  formatValue,
  ticks,
  withInterval,
} from "../data/format.ts";
import { fitted } from "../paint/painter.ts";
import { seriesColor } from "../paint/roles.ts";
import type { Tip } from "../view/controls.tsx";
import type { Row } from "../view/download.ts";
import { FigureFrame } from "./figure_frame.tsx";
import * as svg from "./marks.tsx";
import { type ReportContext, useReport } from "./report_context.ts";

const HEIGHT = 132;
const LEFT = 44;
const GAP = 18;
/** Distance between lines of panels: in a figure of one variable, and of several. */
const STEP_ALONE = 204;
const STEP = HEIGHT + 60;

export function LinesFigureView({ figure }: { figure: LinesFigure }) {
  const context = useReport();
  const notes = figure.equation
    ? undefined
    : figure.columns.flatMap(({ title, equation }) =>
        equation && context.report.equations[equation] ? [{ text: title, equation }] : [],
      );
  return (
    <FigureFrame
      figure={figure}
      {...(notes && { notes })}
      csv={() => lineRows(figure, context)}
      draw={(width) => drawLines(figure, context, width)}
    />
  );
}

function drawLines(figure: LinesFigure, context: ReportContext, width: number) {
  const { rows, columns, title } = figure;
  const isOneColumn = columns.length === 1;
  const { across } = isOneColumn
    ? svg.columnsFor(rows.length, width, 300, GAP)
    : svg.columnsFor(columns.length, width + GAP, 210, GAP);
  const size = Math.min((width - (across - 1) * GAP) / across, 460);
  const spots = new svg.Spots(context);
  let number = 0;
  const draw = (panel: LinePanel | null, column: number, subject: number, x: number, y: number) =>
    panel && (
      <g key={`${subject}/${column}`} transform={svg.shift(x, y)}>
        {drawPanel(figure, panel, column, subject, size, spots, number++)}
      </g>
    );
  const legend = isOneColumn ? lineLegend(rows, width) : { element: null, height: 0 };
  let y = legend.height;
  const content = rows.map(({ subject, panels }, i) => {
    const name = context.titleOf(subject);
    if (isOneColumn) {
      const [x, top] = [(i % across) * (size + GAP), y + Math.floor(i / across) * STEP_ALONE];
      return [
        <svg.Heading key={subject} x={x} y={top + 12} text={name} />,
        draw(panels[0], 0, subject, x, top + 30),
      ];
    }
    const start = y + 22;
    y = start + Math.ceil(panels.length / across) * STEP + 8;
    return [
      <svg.Heading key={subject} x={0} y={start - 10} text={name} />,
      ...panels.map((panel, column) => {
        const x = (column % across) * (size + GAP);
        const top = start + Math.floor(column / across) * STEP;
        const label = fitted(axisTitle(columns[column]), 11, size - 10);
        return [
          <svg.Label key={label} x={x} y={top + 11} text={label} fill="ink" />,
          draw(panel, column, subject, x, top + 24),
        ];
      }),
    ];
  });
  if (isOneColumn) y += Math.ceil(rows.length / across) * STEP_ALONE;
  return (
    <svg.Canvas width={width} height={y} label={title} spots={spots}>
      {legend.element}
      {content}
    </svg.Canvas>
  );
}

function lineLegend(rows: LinesFigure["rows"], width: number) {
  const series = rows.flatMap(({ panels }) => panels[0]?.series ?? []);
  const names = [...new Set(series.map(({ name }) => name))];
  if (names.length < 2) return { element: null, height: 0 };
  const { places, height } = svg.flowNames(names, 40, width, 18);
  const element = places.map(({ name, x, y }, i) => (
    <g key={name}>
      <svg.Line from={[x, y + 6]} to={[x + 16, y + 6]} stroke={seriesColor(i)} width={2} />
      <svg.Label x={x + 22} y={y + 10} text={name} fill="ink" />
    </g>
  ));
  return { element, height: height + 28 };
}

function domain({ rows }: LinesFigure, column: number): [number, number] {
  const numbers = rows.flatMap(({ panels }) => {
    const { series = [], baseline = null } = panels[column] ?? {};
    const values = series.flatMap(({ value, low = [], high = [] }) => [...value, ...low, ...high]);
    return [...values.filter((number) => number !== null), baseline?.value ?? 0];
  });
  return [Math.min(0, ...numbers), Math.max(0, ...numbers) || 1];
}

function drawPanel(
  figure: LinesFigure,
  { series, baseline }: LinePanel,
  column: number,
  subject: number,
  width: number,
  spots: svg.Spots,
  panel: number,
) {
  const { share, title } = figure.columns[column];
  const [low, high] = domain(figure, column);
  const inner = width - LEFT - 8;
  const xs = series[0]?.x ?? [];
  const px = (i: number) => LEFT + (xs.length < 2 ? inner / 2 : (i / (xs.length - 1)) * inner);
  const py = (value: number) => HEIGHT - ((value - low) / (high - low)) * HEIGHT;
  const step = everyNth(xs.length, inner / 26);
  const isAlone = series.length === 1;
  const strip = xs.length < 2 ? inner : inner / (xs.length - 1);
  const level = (value: number) =>
    ({ from: [LEFT, py(value)], to: [LEFT + inner, py(value)] }) as const;
  return (
    <>
      {ticks(low, high, 4).map((value) => (
        <g key={value}>
          <svg.Line {...level(value)} from={[LEFT - 4, py(value)]} stroke="var(--line)" />
          <svg.Tick x={LEFT - 8} y={py(value) + 3.5} text={axisNumber(value, share)} anchor="end" />
        </g>
      ))}
      {xs.map((label, i) =>
        i % step ? null : <svg.Tick key={label} x={px(i)} y={HEIGHT + 15} text={String(label)} />,
      )}
      <svg.Label x={LEFT + inner / 2} y={HEIGHT + 29} text={figure.axis} anchor="middle" />
      {baseline?.value != null && (
        <svg.Line {...level(baseline.value)} stroke="var(--ink)" width={1.5} dashes="5 3" />
      )}
      {series.map((line, i) => drawCurve(line, px, py, seriesColor(isAlone ? subject : i)))}
      {xs.map((label, i) => {
        const rows: Tip["rows"][number][] = series.map((line, k) => [
          line.name || title,
          withInterval(line.value[i], line.low?.[i], line.high?.[i], share),
          isAlone ? "" : seriesColor(k),
        ]);
        if (baseline) rows.push([baseline.name, formatValue(baseline.value, share)]);
        const box = { x: px(i) - strip / 2, y: 0, width: strip, height: HEIGHT };
        const heading = `${figure.axis} ${label}`;
        const spot = spots.add("strip", { heading, rows, panel, x: px(i), y: 0 });
        return <rect key={label} {...svg.round(box)} fill="transparent" {...spot} />;
      })}
    </>
  );
}

function drawCurve(
  { name, value, low, high }: Series,
  px: (i: number) => number,
  py: (value: number) => number,
  stroke: string,
) {
  const point = (i: number, number: number) =>
    `${svg.hundredths(px(i))},${svg.hundredths(py(number))}`;
  return runs(value).map((run) => {
    const hasBand = low && high && run.every((i) => low[i] !== null && high[i] !== null);
    const band = hasBand && [
      ...run.map((i) => point(i, high[i]!)),
      ...run.toReversed().map((i) => point(i, low[i]!)),
    ];
    const points = run.map((i) => point(i, value[i]!)).join(" ");
    const style = {
      fill: "none",
      stroke,
      "stroke-width": 1.75,
      "stroke-linejoin": "round",
    } as const;
    return (
      <g key={`${name}${run[0]}`}>
        {band && <polygon points={band.join(" ")} fill={stroke} fill-opacity={0.18} />}
        <polyline points={points} {...style} />
        {value.length <= 40 &&
          run.map((i) => (
            <circle
              key={i}
              {...svg.round({ cx: px(i), cy: py(value[i]!) })}
              r={2.1}
              fill={stroke}
            />
          ))}
      </g>
    );
  });
}

function runs(values: readonly (number | null)[]): number[][] {
  const list: number[][] = [];
  values.forEach((value, i) => {
    if (value === null) return;
    if (i > 0 && values[i - 1] !== null) list.at(-1)!.push(i);
    else list.push([i]);
  });
  return list;
}

function lineRows({ axis, columns, rows }: LinesFigure, context: ReportContext): Row[] {
  const table: Row[] = [["model", "variable", "series", axis, "value", "low", "high", "baseline"]];
  for (const { subject, panels } of rows) {
    panels.forEach((panel, column) => {
      const baseline = panel?.baseline?.value ?? null;
      for (const { name, x, value, low, high } of panel?.series ?? []) {
        const names = [context.titleOf(subject), columns[column].title, name];
        x.forEach((layer, i) => {
          table.push([...names, layer, value[i], low?.[i] ?? null, high?.[i] ?? null, baseline]);
        });
      }
    });
  }
  return table;
}
