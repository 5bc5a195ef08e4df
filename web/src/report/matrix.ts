// Labels × layers as a heat map: tags and relations, all models on one scale.

import type { MatrixFigure } from "./data.ts";
import {
  canvas,
  type Drawing,
  fitted,
  heading,
  type Scope,
  Spots,
  shade,
  svg,
  text,
  textWidth,
} from "./draw.ts";
import { axisNumber, everyNth, withInterval } from "./number.ts";

const ROW = 15;
const TOP = 34;

export class Matrix implements Drawing {
  constructor(
    private readonly figure: MatrixFigure,
    private readonly scope: Scope,
  ) {}

  render(width: number): SVGSVGElement {
    const { figure } = this;
    const { subjects } = this.scope.report;
    const longest = Math.max(...figure.labels.map((label) => textWidth(label, 11)));
    const left = Math.min(longest + 10, width * 0.32);
    const total = figure.panels.reduce((sum, panel) => sum + panel.x.length, 0);
    const gap = 26;
    const together = (width - left - (figure.panels.length - 1) * gap) / total;
    const isRow = together >= 9;
    const high = this.highest();
    const height = TOP + figure.labels.length * ROW + 22;
    const root = canvas(width, (isRow ? height : height * figure.panels.length) + 30, figure.title);
    const spots = new Spots(this.scope);
    let [x, y] = [left, 0];
    figure.panels.forEach((panel, i) => {
      const cell = Math.min(isRow ? together : (width - left) / panel.x.length, 26);
      const group = svg("g", { transform: `translate(${x} ${y})` });
      const room = Math.max(cell * panel.x.length + (isRow ? gap - 6 : 0), 60);
      const name = fitted(subjects[panel.subject].title, 12.6, isRow ? room : width - left);
      group.append(heading(0, 12, name));
      const step = everyNth(panel.x.length, (panel.x.length * cell) / 18);
      panel.x.forEach((layer, column) => {
        if (column % step) return;
        const at = (column + 0.5) * cell;
        group.append(
          text(at, TOP - 6, String(layer), { "text-anchor": "middle", "font-size": 10 }),
        );
      });
      figure.labels.forEach((label, row) => {
        const top = TOP + row * ROW;
        if (!isRow || i === 0) {
          const place = {
            "text-anchor": "end",
            fill: "var(--ink)",
            "dominant-baseline": "central",
          };
          group.append(text(-8, top + ROW / 2, fitted(label, 11, left - 10), place));
        }
        panel.x.forEach((layer, column) => {
          const number = panel.value[row]?.[column] ?? null;
          const rect = svg("rect", {
            x: column * cell + 0.5,
            y: top + 0.5,
            width: cell - 1,
            height: ROW - 1,
            rx: 1.5,
            class: "cell",
            fill: number === null ? "var(--raised)" : shade(Math.sqrt(number / high)),
          });
          const bounds = [panel.low[row]?.[column], panel.high[row]?.[column]] as const;
          const value = withInterval(number, bounds[0], bounds[1], figure.share);
          const heading = `${label}, layer ${layer}`;
          const spot = { heading, rows: [{ label: subjects[panel.subject].title, value }] };
          group.append(spots.add(rect, { ...spot, panel: i, x: column * cell, y: top }));
        });
      });
      root.append(group);
      if (isRow) x += panel.x.length * cell + gap;
      else y += height;
    });
    root.append(this.legend(high, left, isRow ? height - 8 : y - 8));
    spots.listen(root);
    return root;
  }

  private legend(high: number, x: number, y: number): SVGGElement {
    const group = svg("g", { transform: `translate(${x} ${y})` });
    const steps = 40;
    for (let i = 0; i < steps; i++) {
      const fill = shade(Math.sqrt((i + 0.5) / steps));
      group.append(svg("rect", { x: i * 4, y: 0, width: 4.3, height: 9, fill }));
    }
    const end = axisNumber(Number(high.toPrecision(3)), this.figure.share);
    group.append(
      text(0, 22, axisNumber(0, this.figure.share), { "font-size": 10 }),
      text(steps * 4, 22, end, { "text-anchor": "end", "font-size": 10 }),
    );
    return group;
  }

  private highest(): number {
    let high = 0;
    for (const { value } of this.figure.panels) {
      for (const row of value) for (const number of row ?? []) high = Math.max(high, number ?? 0);
    }
    return high || 1;
  }

  csv(): (string | number | null)[][] {
    const rows: (string | number | null)[][] = [
      ["model", "label", "layer", "value", "low", "high"],
    ];
    for (const panel of this.figure.panels) {
      const { title } = this.scope.report.subjects[panel.subject];
      this.figure.labels.forEach((label, row) => {
        panel.x.forEach((layer, column) => {
          const at = (of: ((number | null)[] | null)[]) => of[row]?.[column] ?? null;
          rows.push([title, label, layer, at(panel.value), at(panel.low), at(panel.high)]);
        });
      });
    }
    return rows;
  }
}
