// Means for each group of documents: a dot with its interval, a color for each model.

import type { DotsFigure, Interval } from "./data.ts";
import {
  canvas,
  color,
  type Drawing,
  fitted,
  type Scope,
  Spots,
  svg,
  text,
  textWidth,
} from "./draw.ts";
import { axisTitle } from "./lines.ts";
import { axisNumber, isInterval, shown, ticks, withInterval } from "./number.ts";

const TOP = 24;

export class Dots implements Drawing {
  constructor(
    private readonly figure: DotsFigure,
    private readonly scope: Scope,
  ) {}

  render(width: number): SVGSVGElement {
    const { figure } = this;
    const { subjects } = this.scope.report;
    const row = figure.subjects.length > 1 ? 10 + 8 * figure.subjects.length : 17;
    const left = Math.min(
      Math.max(...figure.groups.map((g) => textWidth(g, 11))) + 12,
      width * 0.4,
    );
    const across = Math.max(1, Math.min(figure.columns.length, Math.floor((width - left) / 130)));
    const cell = (width - left) / across - 12;
    const height = TOP + figure.groups.length * row + 34;
    const bands = Math.ceil(figure.columns.length / across);
    const legend = figure.subjects.length > 1 ? 24 : 0;
    const root = canvas(width, legend + bands * height, figure.title);
    const spots = new Spots(this.scope);
    if (legend) {
      let x = 0;
      for (const subject of figure.subjects) {
        const { title } = subjects[subject];
        root.append(
          svg("circle", { cx: x + 5, cy: 7, r: 4, fill: color(subject) }),
          text(x + 14, 11, title, { fill: "var(--ink)" }),
        );
        x += textWidth(title, 11) + 36;
      }
    }
    figure.columns.forEach((column, i) => {
      const x0 = left + (i % across) * (cell + 12);
      const y0 = legend + Math.floor(i / across) * height;
      const [low, high] = domain(column);
      const px = (value: number) =>
        x0 + Math.min(1, Math.max(0, (value - low) / (high - low))) * cell;
      const bottom = y0 + TOP + figure.groups.length * row;
      root.append(text(x0, y0 + 12, fitted(axisTitle(column), 11, cell), { fill: "var(--ink)" }));
      for (const tick of ticks(low, high, 3)) {
        root.append(
          svg("line", {
            x1: px(tick),
            x2: px(tick),
            y1: y0 + TOP,
            y2: bottom,
            stroke: "var(--line)",
          }),
          text(px(tick), bottom + 14, axisNumber(tick, column.share), {
            "text-anchor": "middle",
            "font-size": 10,
          }),
        );
      }
      figure.groups.forEach((group, g) => {
        const middle = y0 + TOP + (g + 0.5) * row;
        if (i % across === 0) {
          const place = {
            "text-anchor": "end",
            fill: "var(--ink)",
            "dominant-baseline": "central",
          };
          root.append(text(left - 10, middle, fitted(group, 11, left - 12), place));
        }
        figure.subjects.forEach((subject, s) => {
          const y = middle + (s - (figure.subjects.length - 1) / 2) * 8;
          const value = column.values[s][g];
          const found: Interval = isInterval(value) ? value : { value, low: null, high: null };
          if (found.value === null) return;
          const mark = svg("g");
          if (found.low !== null && found.high !== null) {
            mark.append(
              svg("line", {
                x1: px(found.low),
                x2: px(found.high),
                y1: y,
                y2: y,
                stroke: color(subject),
                "stroke-opacity": 0.55,
                "stroke-width": 2,
              }),
            );
          }
          const base = column.baselines[s][g];
          if (base !== null) {
            mark.append(
              svg("line", {
                x1: px(base),
                x2: px(base),
                y1: y - 4,
                y2: y + 4,
                stroke: "var(--ink)",
                "stroke-width": 1.75,
              }),
            );
          }
          mark.append(
            svg("circle", {
              cx: px(found.value),
              cy: y,
              r: 3.4,
              class: "dot",
              fill: color(subject),
            }),
            svg("rect", {
              x: x0,
              y: y - 4,
              width: cell,
              height: 8,
              class: "strip",
              fill: "transparent",
            }),
          );
          const rows = [
            {
              label: `${subjects[subject].title}`,
              value: withInterval(found.value, found.low, found.high, column.share),
              color: color(subject),
            },
            ...(base === null ? [] : [{ label: "baseline", value: shown(base, column.share) }]),
          ];
          root.append(
            spots.add(mark, {
              heading: `${group} · ${column.title}`,
              rows,
              panel: i,
              x: px(found.value),
              y,
            }),
          );
        });
      });
    });
    spots.listen(root);
    return root;
  }

  csv(): (string | number | null)[][] {
    const { figure } = this;
    const rows: (string | number | null)[][] = [
      ["model", "group", "variable", "value", "low", "high", "baseline"],
    ];
    for (const column of figure.columns) {
      figure.subjects.forEach((subject, s) => {
        figure.groups.forEach((group, g) => {
          const value = column.values[s][g];
          const found = isInterval(value) ? value : { value, low: null, high: null };
          const { title } = this.scope.report.subjects[subject];
          rows.push([
            title,
            group.replace(/ \(\d+\)$/, ""),
            column.title,
            found.value,
            found.low,
            found.high,
            column.baselines[s][g],
          ]);
        });
      });
    }
    return rows;
  }
}

/** From the values, and their intervals where these do not dwarf them. */
function domain({ values, baselines }: DotsFigure["columns"][number]): [number, number] {
  const dots = [...values.flat().map((value) => (isInterval(value) ? value.value : value))];
  const known = [...dots, ...baselines.flat()].filter((value): value is number => value !== null);
  const ends = [Math.min(...known), Math.max(...known)];
  const room = ends[1] - ends[0] || Math.abs(ends[1]) || 1;
  const bounds = values
    .flat()
    .flatMap((value) => (isInterval(value) ? [value.low, value.high] : []));
  const near = bounds.filter((value): value is number => value !== null);
  const low = Math.max(Math.min(ends[0], ...near), ends[0] - room);
  const high = Math.min(Math.max(ends[1], ...near), ends[1] + room);
  const margin = 0.05 * (high - low) || 0.1;
  return [low - margin, high + margin];
}
