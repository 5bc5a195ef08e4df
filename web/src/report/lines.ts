// Small multiples of lines by layer, with bands for intervals and dashed baselines.

import { axisNumber, axisTitle, everyNth, shown, ticks, withInterval } from "../data/format.ts";
import type { Row } from "../view/download.ts";
import type { Line, LinePanel, LinesFigure } from "./data.ts";
import {
  canvas,
  color,
  type Drawing,
  fitted,
  flowNames,
  heading,
  line,
  round,
  type Scope,
  Spots,
  svg,
  text,
  tick,
} from "./draw.ts";

const HEIGHT = 132;
const LEFT = 44;
const BOTTOM = 34;
const GAP = 18;

interface Place {
  readonly x: number;
  readonly y: number;
  readonly width: number;
}

export class Lines implements Drawing {
  constructor(
    private readonly figure: LinesFigure,
    private readonly scope: Scope,
  ) {}

  render(width: number): SVGSVGElement {
    const { rows, columns, title } = this.figure;
    const isOneColumn = columns.length === 1;
    const across = isOneColumn
      ? Math.max(1, Math.min(rows.length, Math.floor(width / 300)))
      : Math.max(1, Math.min(columns.length, Math.floor((width + GAP) / 210)));
    const own = Math.min((width - (across - 1) * GAP) / across, 460);
    const spots = new Spots(this.scope);
    const content = svg("g");
    let y = 0;
    let number = 0;
    const panel = (
      one: LinePanel | null,
      column: number,
      subject: number,
      x: number,
      top: number,
    ) => {
      if (!one) return;
      const place = { x, y: top, width: own };
      content.append(this.panel(one, column, subject, place, spots, number++));
    };
    if (isOneColumn) {
      y = this.legend(content, width);
      rows.forEach(({ subject, panels }, i) => {
        const [x, top] = [(i % across) * (own + GAP), y + Math.floor(i / across) * 204];
        content.append(this.title(subject, x, top + 12));
        panel(panels[0], 0, subject, x, top + 30);
      });
      y += Math.ceil(rows.length / across) * 204;
    } else {
      for (const { subject, panels } of rows) {
        content.append(this.title(subject, 0, y + 12));
        y += 22;
        panels.forEach((one, column) => {
          const x = (column % across) * (own + GAP);
          const top = y + Math.floor(column / across) * (HEIGHT + BOTTOM + 26);
          const label = fitted(axisTitle(columns[column]), 11, own - 10);
          content.append(text(x, top + 11, label, { fill: "var(--ink)" }));
          panel(one, column, subject, x, top + 24);
        });
        y += Math.ceil(panels.length / across) * (HEIGHT + BOTTOM + 26) + 8;
      }
    }
    const root = canvas(width, y, title);
    root.append(content);
    spots.listen(root);
    return root;
  }

  private title(subject: number, x: number, y: number): SVGTextElement {
    return heading(x, y, this.scope.report.subjects[subject].title);
  }

  /** Names of the lines, where there are several; returns the room that they take. */
  private legend(content: SVGGElement, width: number): number {
    const series = this.figure.rows.flatMap(({ panels }) => panels[0]?.series ?? []);
    const names = [...new Set(series.map(({ name }) => name))];
    if (names.length < 2) return 0;
    const last = flowNames(names, { room: 40, width, step: 18 }, (name, x, y, i) => {
      content.append(
        line([x, y + 6], [x + 16, y + 6], { stroke: color(i), "stroke-width": 2 }),
        text(x + 22, y + 10, name, { fill: "var(--ink)" }),
      );
    });
    return last + 28;
  }

  private domain(column: number): [number, number] {
    let [low, high] = [0, 0];
    for (const { panels } of this.figure.rows) {
      const panel = panels[column];
      if (!panel) continue;
      for (const { value, low: l, high: h } of panel.series) {
        for (const number of [...value, ...(l ?? []), ...(h ?? [])]) {
          if (number === null) continue;
          low = Math.min(low, number);
          high = Math.max(high, number);
        }
      }
      high = Math.max(high, panel.baseline?.value ?? 0);
    }
    return [low, high || 1];
  }

  private panel(
    { series, baseline }: LinePanel,
    column: number,
    subject: number,
    { x, y, width }: Place,
    spots: Spots,
    number: number,
  ): SVGGElement {
    const axis = this.figure.columns[column];
    const [low, high] = this.domain(column);
    const inner = width - LEFT - 8;
    const xs = series[0]?.x ?? [];
    const px = (i: number) => LEFT + (xs.length < 2 ? inner / 2 : (i / (xs.length - 1)) * inner);
    const py = (value: number) => HEIGHT - ((value - low) / (high - low)) * HEIGHT;
    const group = svg("g", { transform: `translate(${round(x)} ${round(y)})` });
    for (const value of ticks(low, high, 4)) {
      const at = py(value);
      group.append(
        line([LEFT - 4, at], [LEFT + inner, at], { stroke: "var(--line)" }),
        tick(LEFT - 8, at + 3.5, axisNumber(value, axis.share), "end"),
      );
    }
    const step = everyNth(xs.length, inner / 26);
    xs.forEach((label, i) => {
      if (i % step === 0) group.append(tick(px(i), HEIGHT + 15, String(label)));
    });
    group.append(
      text(LEFT + inner / 2, HEIGHT + 29, this.figure.axis, { "text-anchor": "middle" }),
    );
    if (baseline) {
      const look = { stroke: "var(--ink)", "stroke-width": 1.5, "stroke-dasharray": "5 3" };
      const at = py(baseline.value);
      group.append(line([LEFT, at], [LEFT + inner, at], look));
    }
    const isAlone = series.length === 1;
    series.forEach((one, i) => {
      group.append(...curve(one, px, py, color(isAlone ? subject : i)));
    });
    const strip = xs.length < 2 ? inner : inner / (xs.length - 1);
    xs.forEach((label, i) => {
      const rows = series.map((one, k) => ({
        label: one.name || axis.title,
        value: withInterval(one.value[i], one.low?.[i], one.high?.[i], axis.share),
        ...(isAlone ? {} : { color: color(k) }),
      }));
      if (baseline) rows.push({ label: baseline.name, value: shown(baseline.value, axis.share) });
      const box = { x: px(i) - strip / 2, y: 0, width: strip, height: HEIGHT };
      const hit = svg("rect", { ...box, class: "strip", fill: "transparent" });
      const heading = `${this.figure.axis} ${label}`;
      group.append(spots.add(hit, { heading, rows, panel: number, x: px(i), y: 0 }));
    });
    return group;
  }

  csv(): Row[] {
    const { figure } = this;
    const rows: Row[] = [
      ["model", "variable", "series", figure.axis, "value", "low", "high", "baseline"],
    ];
    for (const { subject, panels } of figure.rows) {
      const { title } = this.scope.report.subjects[subject];
      panels.forEach((panel, column) => {
        for (const { name, x, value, low, high } of panel?.series ?? []) {
          x.forEach((at, i) => {
            rows.push([
              ...[title, figure.columns[column].title, name, at],
              ...[value[i], low?.[i] ?? null, high?.[i] ?? null, panel?.baseline?.value ?? null],
            ]);
          });
        }
      });
    }
    return rows;
  }
}

function curve(
  { value, low, high }: Line,
  px: (i: number) => number,
  py: (value: number) => number,
  stroke: string,
): SVGElement[] {
  const made: SVGElement[] = [];
  for (const [from, to] of runs(value)) {
    const at = Array.from({ length: to - from }, (_, i) => from + i);
    const point = (i: number, number: number) => `${round(px(i))},${round(py(number))}`;
    if (low && high && at.every((i) => low[i] !== null && high[i] !== null)) {
      const band = [
        ...at.map((i) => point(i, high[i]!)),
        ...at.toReversed().map((i) => point(i, low[i]!)),
      ];
      made.push(svg("polygon", { points: band.join(" "), fill: stroke, "fill-opacity": 0.18 }));
    }
    const points = at.map((i) => point(i, value[i]!)).join(" ");
    const look = { fill: "none", stroke, "stroke-width": 1.75, "stroke-linejoin": "round" };
    made.push(svg("polyline", { points, ...look }));
    if (value.length <= 40) {
      for (const i of at)
        made.push(svg("circle", { cx: px(i), cy: py(value[i]!), r: 2.1, fill: stroke }));
    }
  }
  return made;
}

/** Stretches of known values. */
function runs(value: readonly (number | null)[]): [number, number][] {
  const found: [number, number][] = [];
  let start = -1;
  for (let i = 0; i <= value.length; i++) {
    const known = i < value.length && value[i] !== null;
    if (known && start < 0) start = i;
    if (!known && start >= 0) {
      found.push([start, i]);
      start = -1;
    }
  }
  return found;
}
