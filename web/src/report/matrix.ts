// Labels × layers as a heat map: tags and relations, all models on one scale.

import { axisNumber, everyNth, withInterval } from "../data/format.ts";
import type { Row } from "../view/download.ts";
import type { MatrixFigure } from "./data.ts";
import {
  canvas,
  colorScale,
  type Drawing,
  fitted,
  heading,
  type Scope,
  Spots,
  shade,
  svg,
  text,
  textWidth,
  tick,
} from "./draw.ts";

const ROW = 15;
const TOP = 34;
const GAP = 26;

export class Matrix implements Drawing {
  constructor(
    private readonly figure: MatrixFigure,
    private readonly scope: Scope,
  ) {}

  render(width: number): SVGSVGElement {
    const { labels, panels, share, title } = this.figure;
    const { subjects } = this.scope.report;
    const longest = Math.max(...labels.map((label) => textWidth(label, 11)));
    const left = Math.min(longest + 10, width * 0.32);
    const total = panels.reduce((sum, panel) => sum + panel.x.length, 0);
    const together = (width - left - (panels.length - 1) * GAP) / total;
    const isRow = together >= 9;
    const values = panels.flatMap(({ value }) => value.flatMap((row) => row ?? []));
    const high = Math.max(0, ...values.map((number) => number ?? 0)) || 1;
    const height = TOP + labels.length * ROW + 22;
    const root = canvas(width, (isRow ? height : height * panels.length) + 30, title);
    const spots = new Spots(this.scope);
    let [x, y] = [left, 0];
    panels.forEach((panel, i) => {
      const name = subjects[panel.subject].title;
      const cell = Math.min(isRow ? together : (width - left) / panel.x.length, 26);
      const group = svg("g", { transform: `translate(${x} ${y})` });
      const room = isRow ? Math.max(cell * panel.x.length + GAP - 6, 60) : width - left;
      group.append(heading(0, 12, fitted(name, 12.6, room)));
      const step = everyNth(panel.x.length, (panel.x.length * cell) / 18);
      panel.x.forEach((layer, column) => {
        if (column % step) return;
        group.append(tick((column + 0.5) * cell, TOP - 6, String(layer)));
      });
      labels.forEach((label, row) => {
        const top = TOP + row * ROW;
        if (!isRow || i === 0) {
          const place = { "text-anchor": "end", "dominant-baseline": "central" };
          const shown = fitted(label, 11, left - 10);
          group.append(text(-8, top + ROW / 2, shown, { ...place, fill: "var(--ink)" }));
        }
        panel.x.forEach((layer, column) => {
          const number = panel.value[row]?.[column] ?? null;
          const box = { x: column * cell + 0.5, y: top + 0.5, width: cell - 1, height: ROW - 1 };
          const fill = number === null ? "var(--raised)" : shade(Math.sqrt(number / high));
          const rect = svg("rect", { ...box, rx: 1.5, class: "cell", fill });
          const [low, above] = [panel.low[row]?.[column], panel.high[row]?.[column]];
          const rows = [{ label: name, value: withInterval(number, low, above, share) }];
          const spot = { heading: `${label}, layer ${layer}`, rows, panel: i };
          group.append(spots.add(rect, { ...spot, x: column * cell, y: top }));
        });
      });
      root.append(group);
      if (isRow) x += panel.x.length * cell + GAP;
      else y += height;
    });
    const ends = [0, Number(high.toPrecision(3))].map((value) => axisNumber(value, share));
    const scale = (part: number) => shade(Math.sqrt(part));
    root.append(colorScale(left, (isRow ? height : y) - 8, scale, [ends[0], ends[1]]));
    spots.listen(root);
    return root;
  }

  csv(): Row[] {
    const rows: Row[] = [["model", "label", "layer", "value", "low", "high"]];
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
