// Small multiples of lines by layer, with bands for intervals and dashed baselines.

import type { Axis, Line, LinePanel, LinesFigure } from "./data.ts";
import {
  canvas,
  color,
  type Drawing,
  fitted,
  heading,
  round,
  type Scope,
  Spots,
  svg,
  text,
  textWidth,
} from "./draw.ts";
import { axisNumber, everyNth, shown, ticks, withInterval } from "./number.ts";

const HEIGHT = 132;
const LEFT = 44;
const BOTTOM = 34;
const GAP = 18;

export class Lines implements Drawing {
  constructor(
    private readonly figure: LinesFigure,
    private readonly scope: Scope,
  ) {}

  render(width: number): SVGSVGElement {
    const { figure } = this;
    const isOneColumn = figure.columns.length === 1;
    const across = isOneColumn
      ? Math.max(1, Math.min(figure.rows.length, Math.floor(width / 300)))
      : Math.max(1, Math.min(figure.columns.length, Math.floor((width + GAP) / 210)));
    const panelWidth = Math.min((width - (across - 1) * GAP) / across, 460);
    const spots = new Spots(this.scope);
    const content = svg("g");
    let y = 0;
    let panel = 0;
    if (isOneColumn) {
      const legend = this.legend(width);
      if (legend) {
        content.append(legend.group);
        y = legend.height;
      }
      figure.rows.forEach((row, i) => {
        const place = { x: (i % across) * (panelWidth + GAP), y: y + Math.floor(i / across) * 204 };
        content.append(this.title(row.subject, place.x, place.y + 12));
        const one = row.panels[0];
        if (one)
          content.append(
            this.panel(one, 0, row.subject, place.x, place.y + 30, panelWidth, spots, panel++),
          );
      });
      y += Math.ceil(figure.rows.length / across) * 204;
    } else {
      for (const row of figure.rows) {
        content.append(this.title(row.subject, 0, y + 12));
        y += 22;
        row.panels.forEach((one, column) => {
          const x = (column % across) * (panelWidth + GAP);
          const top = y + Math.floor(column / across) * (HEIGHT + BOTTOM + 26);
          const label = fitted(axisTitle(figure.columns[column]), 11, panelWidth - 10);
          content.append(text(x, top + 11, label, { fill: "var(--ink)" }));
          if (one)
            content.append(
              this.panel(one, column, row.subject, x, top + 24, panelWidth, spots, panel++),
            );
        });
        y += Math.ceil(row.panels.length / across) * (HEIGHT + BOTTOM + 26) + 8;
      }
    }
    const root = canvas(width, y, figure.title);
    root.append(content);
    spots.listen(root);
    return root;
  }

  private title(subject: number, x: number, y: number): SVGTextElement {
    return heading(x, y, this.scope.report.subjects[subject].title);
  }

  private legend(width: number): { group: SVGGElement; height: number } | null {
    const names = [
      ...new Set(this.figure.rows.flatMap((row) => row.panels[0]?.series.map((s) => s.name) ?? [])),
    ];
    if (names.length < 2) return null;
    const group = svg("g");
    let [x, y] = [0, 10];
    names.forEach((name, i) => {
      const size = textWidth(name, 11) + 40;
      if (x + size > width) [x, y] = [0, y + 18];
      group.append(
        svg("line", {
          x1: x,
          x2: x + 16,
          y1: y - 4,
          y2: y - 4,
          stroke: color(i),
          "stroke-width": 2,
        }),
        text(x + 22, y, name, { fill: "var(--ink)" }),
      );
      x += size;
    });
    return { group, height: y + 18 };
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
    panel: LinePanel,
    column: number,
    subject: number,
    x: number,
    y: number,
    width: number,
    spots: Spots,
    number: number,
  ): SVGGElement {
    const axis = this.figure.columns[column];
    const [low, high] = this.domain(column);
    const inner = width - LEFT - 8;
    const xs = panel.series[0]?.x ?? [];
    const px = (i: number) => LEFT + (xs.length < 2 ? inner / 2 : (i / (xs.length - 1)) * inner);
    const py = (value: number) => HEIGHT - ((value - low) / (high - low)) * HEIGHT;
    const group = svg("g", { transform: `translate(${round(x)} ${round(y)})` });
    for (const tick of ticks(low, high, 4)) {
      const at = py(tick);
      group.append(
        svg("line", { x1: LEFT - 4, x2: LEFT + inner, y1: at, y2: at, stroke: "var(--line)" }),
        text(LEFT - 8, at + 3.5, axisNumber(tick, axis.share), {
          "text-anchor": "end",
          "font-size": 10,
        }),
      );
    }
    const step = everyNth(xs.length, inner / 26);
    xs.forEach((label, i) => {
      if (i % step) return;
      group.append(
        text(px(i), HEIGHT + 15, String(label), { "text-anchor": "middle", "font-size": 10 }),
      );
    });
    group.append(
      text(LEFT + inner / 2, HEIGHT + 29, this.figure.axis, { "text-anchor": "middle" }),
    );
    if (panel.baseline) {
      const at = py(panel.baseline.value);
      group.append(
        svg("line", {
          x1: LEFT,
          x2: LEFT + inner,
          y1: at,
          y2: at,
          stroke: "var(--ink)",
          "stroke-width": 1.5,
          "stroke-dasharray": "5 3",
        }),
      );
    }
    panel.series.forEach((line, i) => {
      const shownColor = panel.series.length > 1 ? color(i) : color(subject);
      group.append(...curve(line, px, py, shownColor));
    });
    const strip = xs.length < 2 ? inner : inner / (xs.length - 1);
    xs.forEach((label, i) => {
      const rows = panel.series.map((line, k) => ({
        label: line.name || axis.title,
        value: withInterval(line.value[i], line.low?.[i], line.high?.[i], axis.share),
        ...(panel.series.length > 1 ? { color: color(k) } : {}),
      }));
      if (panel.baseline) {
        rows.push({ label: panel.baseline.name, value: shown(panel.baseline.value, axis.share) });
      }
      const hit = svg("rect", {
        x: px(i) - strip / 2,
        y: 0,
        width: strip,
        height: HEIGHT,
        class: "strip",
        fill: "transparent",
      });
      group.append(
        spots.add(hit, {
          heading: `${this.figure.axis} ${label}`,
          rows,
          panel: number,
          x: px(i),
          y: 0,
        }),
      );
    });
    return group;
  }

  csv(): (string | number | null)[][] {
    const { figure } = this;
    const rows: (string | number | null)[][] = [
      ["model", "variable", "series", figure.axis, "value", "low", "high", "baseline"],
    ];
    for (const { subject, panels } of figure.rows) {
      panels.forEach((panel, column) => {
        for (const line of panel?.series ?? []) {
          line.x.forEach((x, i) => {
            rows.push([
              this.scope.report.subjects[subject].title,
              figure.columns[column].title,
              line.name,
              x,
              line.value[i],
              line.low?.[i] ?? null,
              line.high?.[i] ?? null,
              panel?.baseline?.value ?? null,
            ]);
          });
        }
      });
    }
    return rows;
  }
}

export function axisTitle(axis: Axis): string {
  return axis.share || !axis.units ? axis.title : `${axis.title} (${axis.units})`;
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
    made.push(
      svg("polyline", {
        points,
        fill: "none",
        stroke,
        "stroke-width": 1.75,
        "stroke-linejoin": "round",
      }),
    );
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
