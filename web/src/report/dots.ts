// Means for each group of documents: a dot with its interval, a color for each model.

import { axisNumber, axisTitle, isInterval, shown, ticks, withInterval } from "../data/format.ts";
import type { Row } from "../view/download.ts";
import type { DotsFigure, Interval } from "./data.ts";
import {
  canvas,
  color,
  type Drawing,
  fitted,
  flowNames,
  line,
  type Scope,
  Spots,
  svg,
  text,
  textWidth,
  tick,
} from "./draw.ts";

const TOP = 24;

type Column = DotsFigure["columns"][number];

export class Dots implements Drawing {
  constructor(
    private readonly figure: DotsFigure,
    private readonly scope: Scope,
  ) {}

  private title(subject: number): string {
    return this.scope.report.subjects[subject].title;
  }

  render(width: number): SVGSVGElement {
    const { groups, columns, subjects, title } = this.figure;
    const isAlone = subjects.length === 1;
    const row = isAlone ? 17 : 10 + 8 * subjects.length;
    const longest = Math.max(...groups.map((group) => textWidth(group, 11)));
    const left = Math.min(longest + 12, width * 0.4);
    const across = Math.max(1, Math.min(columns.length, Math.floor((width - left) / 130)));
    const cell = (width - left) / across - 12;
    const height = TOP + groups.length * row + 34;
    const legend = isAlone ? 0 : 24;
    const root = canvas(width, legend + Math.ceil(columns.length / across) * height, title);
    const spots = new Spots(this.scope);
    if (!isAlone) {
      const room = { room: 36, width: Number.POSITIVE_INFINITY, step: 0 };
      flowNames(subjects.map(this.title, this), room, (name, x, _, i) => {
        root.append(
          svg("circle", { cx: x + 5, cy: 7, r: 4, fill: color(subjects[i]) }),
          text(x + 14, 11, name, { fill: "var(--ink)" }),
        );
      });
    }
    columns.forEach((column, i) => {
      const x0 = left + (i % across) * (cell + 12);
      const y0 = legend + Math.floor(i / across) * height + TOP;
      const bottom = y0 + groups.length * row;
      const [low, high] = domain(column);
      const px = (value: number) =>
        x0 + Math.min(1, Math.max(0, (value - low) / (high - low))) * cell;
      root.append(text(x0, y0 - 12, fitted(axisTitle(column), 11, cell), { fill: "var(--ink)" }));
      for (const value of ticks(low, high, 3)) {
        const x = px(value);
        root.append(
          line([x, y0], [x, bottom], { stroke: "var(--line)" }),
          tick(x, bottom + 14, axisNumber(value, column.share)),
        );
      }
      groups.forEach((group, g) => {
        const middle = y0 + (g + 0.5) * row;
        if (i % across === 0) {
          const place = { "text-anchor": "end", "dominant-baseline": "central" };
          const name = fitted(group, 11, left - 12);
          root.append(text(left - 10, middle, name, { ...place, fill: "var(--ink)" }));
        }
        subjects.forEach((subject, s) => {
          const found = intervalOf(column.values[s][g]);
          if (found.value === null) return;
          const y = middle + (s - (subjects.length - 1) / 2) * 8;
          const base = column.baselines[s][g];
          const strip = { x: x0, y: y - 4, width: cell, height: 8 };
          const mark = svg(
            "g",
            {},
            ...dot(found, base, px, y, color(subject)),
            svg("rect", { ...strip, class: "strip", fill: "transparent" }),
          );
          const value = withInterval(found.value, found.low, found.high, column.share);
          const rows = [
            { label: this.title(subject), value, color: color(subject) },
            ...(base === null ? [] : [{ label: "baseline", value: shown(base, column.share) }]),
          ];
          const heading = `${group} · ${column.title}`;
          root.append(spots.add(mark, { heading, rows, panel: i, x: px(found.value), y }));
        });
      });
    });
    spots.listen(root);
    return root;
  }

  csv(): Row[] {
    const { groups, columns, subjects } = this.figure;
    const rows: Row[] = [["model", "group", "variable", "value", "low", "high", "baseline"]];
    for (const column of columns) {
      subjects.forEach((subject, s) => {
        groups.forEach((group, g) => {
          const { value, low, high } = intervalOf(column.values[s][g]);
          const name = group.replace(/ \(\d+\)$/, "");
          const base = column.baselines[s][g];
          rows.push([this.title(subject), name, column.title, value, low, high, base]);
        });
      });
    }
    return rows;
  }
}

function intervalOf(value: Interval | number | null): Interval {
  return isInterval(value) ? value : { value, low: null, high: null };
}

/** A value, its interval behind it, and what it is held against. */
function dot(
  { value, low, high }: Interval,
  base: number | null,
  px: (value: number) => number,
  y: number,
  fill: string,
): SVGElement[] {
  const marks: SVGElement[] = [];
  if (low !== null && high !== null) {
    const look = { stroke: fill, "stroke-opacity": 0.55, "stroke-width": 2 };
    marks.push(line([px(low), y], [px(high), y], look));
  }
  if (base !== null) {
    const look = { stroke: "var(--ink)", "stroke-width": 1.75 };
    marks.push(line([px(base), y - 4], [px(base), y + 4], look));
  }
  return [...marks, svg("circle", { cx: px(value!), cy: y, r: 3.4, class: "dot", fill })];
}

/** From the values, and their intervals where these do not dwarf them. */
function domain({ values, baselines }: Column): [number, number] {
  const isKnown = (value: number | null) => value !== null;
  const found = values.flat().map(intervalOf);
  const known = [...found.map(({ value }) => value), ...baselines.flat()].filter(isKnown);
  const near = found.flatMap(({ low, high }) => [low, high]).filter(isKnown);
  const ends = [Math.min(...known), Math.max(...known)];
  const room = ends[1] - ends[0] || Math.abs(ends[1]) || 1;
  const low = Math.max(Math.min(ends[0], ...near), ends[0] - room);
  const high = Math.min(Math.max(ends[1], ...near), ends[1] + room);
  const margin = 0.05 * (high - low) || 0.1;
  return [low - margin, high + margin];
}
