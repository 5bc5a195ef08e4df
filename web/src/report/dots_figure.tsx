// Means for each group of documents: a dot with its interval, a color for each model.

import type { DotsFigure, IntervalCell } from "../../generated/report.ts";
import {
  axisNumber,
  axisTitle,
  formatValue,
  isInterval,
  ticks,
  withInterval,
} from "../data/format.ts";
import { fitted, textWidth } from "../paint/painter.ts";
import { seriesColor } from "../paint/roles.ts";
import type { Tip } from "../view/controls.tsx";
import type { Row } from "../view/download.ts";
import { FigureFrame } from "./figure_frame.tsx";
import * as svg from "./marks.tsx";
import { type ReportContext, useReport } from "./report_context.ts";

const TOP = 24;

type Column = DotsFigure["columns"][number];

export function DotsFigureView({ figure }: { figure: DotsFigure }) {
  const context = useReport();
  const draw = (width: number) => drawDots(figure, context, width);
  return <FigureFrame figure={figure} csv={() => dotRows(figure, context)} draw={draw} />;
}

function drawDots(
  { groups, columns, subjects, title }: DotsFigure,
  context: ReportContext,
  width: number,
) {
  const isAlone = subjects.length === 1;
  const row = isAlone ? 17 : 10 + 8 * subjects.length;
  const longest = Math.max(...groups.map((group) => textWidth(group, 11)));
  const left = Math.min(longest + 12, width * 0.4);
  const across = Math.max(1, Math.min(columns.length, Math.floor((width - left) / 130)));
  const cell = (width - left) / across - 12;
  const height = TOP + groups.length * row + 34;
  const legend = isAlone ? 0 : 24;
  const spots = new svg.Spots(context);
  const names = isAlone ? [] : subjects.map((subject) => context.titleOf(subject));
  const panels = columns.map((column, i) => {
    const x0 = left + (i % across) * (cell + 12);
    const y0 = legend + Math.floor(i / across) * height + TOP;
    const bottom = y0 + groups.length * row;
    const [low, high] = domain(column);
    const px = (value: number) =>
      x0 + Math.min(1, Math.max(0, (value - low) / (high - low))) * cell;
    const drawDot = (group: string, g: number, subject: number, s: number) => {
      const estimate = intervalOf(column.values[s][g]);
      const { value } = estimate;
      if (value === null) return null;
      const y = y0 + (g + 0.5) * row + (s - (subjects.length - 1) / 2) * 8;
      const baseline = column.baselines[s][g];
      const text = withInterval(value, estimate.low, estimate.high, column.share);
      const rows: Tip["rows"][number][] = [[context.titleOf(subject), text, seriesColor(subject)]];
      if (baseline !== null) rows.push(["baseline", formatValue(baseline, column.share)]);
      const heading = `${group} · ${column.title}`;
      return (
        <g key={subject} {...spots.add("", { heading, rows, panel: i, x: px(value), y })}>
          <Dot {...estimate} baseline={baseline} px={px} y={y} color={seriesColor(subject)} />
          <rect
            {...svg.round({ x: x0, y: y - 4, width: cell, height: 8 })}
            class="strip"
            fill="transparent"
          />
        </g>
      );
    };
    return (
      <g key={column.title}>
        <svg.Label x={x0} y={y0 - 12} text={fitted(axisTitle(column), 11, cell)} fill="ink" />
        {ticks(low, high, 3).map((value) => (
          <g key={value}>
            <svg.Line from={[px(value), y0]} to={[px(value), bottom]} stroke="var(--line)" />
            <svg.Tick x={px(value)} y={bottom + 14} text={axisNumber(value, column.share)} />
          </g>
        ))}
        {groups.map((group, g) => {
          const [y, name] = [y0 + (g + 0.5) * row, fitted(group, 11, left - 12)];
          return (
            <g key={group}>
              {i % across === 0 && (
                <svg.Label x={left - 10} y={y} text={name} anchor="end" fill="ink" isCentral />
              )}
              {subjects.map((subject, s) => drawDot(group, g, subject, s))}
            </g>
          );
        })}
      </g>
    );
  });
  const total = legend + Math.ceil(columns.length / across) * height;
  return (
    <svg.Canvas width={width} height={total} label={title} spots={spots}>
      {svg.flowNames(names, 36, Number.POSITIVE_INFINITY, 0).places.map(({ name, x }, i) => (
        <g key={name}>
          <circle cx={x + 5} cy={7} r={4} fill={seriesColor(subjects[i])} />
          <svg.Label x={x + 14} y={11} text={name} fill="ink" />
        </g>
      ))}
      {panels}
    </svg.Canvas>
  );
}

interface DotProps extends IntervalCell {
  readonly baseline: number | null;
  readonly y: number;
  readonly color: string;
  px(value: number): number;
}

function Dot({ value, low, high, baseline, px, y, color }: DotProps) {
  const tick = baseline === null ? 0 : px(baseline);
  return (
    <>
      {low !== null && high !== null && (
        <svg.Line from={[px(low), y]} to={[px(high), y]} stroke={color} opacity={0.55} width={2} />
      )}
      {baseline !== null && (
        <svg.Line from={[tick, y - 4]} to={[tick, y + 4]} stroke="var(--ink)" width={1.75} />
      )}
      <circle {...svg.round({ cx: px(value!), cy: y })} r={3.4} class="dot" fill={color} />
    </>
  );
}

function intervalOf(value: IntervalCell | number | null): IntervalCell {
  return isInterval(value) ? value : { value, low: null, high: null };
}

/** Range of the values, and of their intervals unless these are far wider. */
function domain({ values, baselines }: Column): [number, number] {
  const isNumber = (value: number | null) => value !== null;
  const estimates = values.flat().map(intervalOf);
  const centers = [...estimates.map(({ value }) => value), ...baselines.flat()].filter(isNumber);
  const bounds = estimates.flatMap(({ low, high }) => [low, high]).filter(isNumber);
  const [least, most] = [Math.min(...centers), Math.max(...centers)];
  const room = most - least || Math.abs(most) || 1;
  const low = Math.max(Math.min(least, ...bounds), least - room);
  const high = Math.min(Math.max(most, ...bounds), most + room);
  const margin = 0.05 * (high - low) || 0.1;
  return [low - margin, high + margin];
}

function dotRows({ groups, columns, subjects }: DotsFigure, context: ReportContext): Row[] {
  const rows: Row[] = [["model", "group", "variable", "value", "low", "high", "baseline"]];
  for (const { title, values, baselines } of columns) {
    subjects.forEach((subject, s) => {
      groups.forEach((group, g) => {
        const { value, low, high } = intervalOf(values[s][g]);
        const names = [context.titleOf(subject), group.replace(/ \(\d+\)$/, ""), title];
        rows.push([...names, value, low, high, baselines[s][g]]);
      });
    });
  }
  return rows;
}
