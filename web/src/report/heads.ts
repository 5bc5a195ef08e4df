// Layer × head heat maps of one variable at a time, all models on one scale.

import { make } from "../view/element.ts";
import type { HeadsFigure, HeadValues, Variable } from "./data.ts";
import {
  canvas,
  type Drawing,
  flow,
  heading,
  type Scope,
  Spots,
  shade,
  svg,
  text,
} from "./draw.ts";
import { axisNumber, everyNth, withInterval } from "./number.ts";

const LEFT = 26;
const TOP = 34;

export class Heads implements Drawing {
  readonly controls: HTMLElement;
  private variable: Variable;

  constructor(
    private readonly figure: HeadsFigure,
    private readonly scope: Scope,
    private readonly changed: () => void,
  ) {
    this.variable = figure.variables[0];
    this.controls = make("div", { class: "chooser" }, this.list());
  }

  get equation(): string {
    return this.variable.name;
  }

  get about(): { meaning: string; paper: string } {
    return this.variable;
  }

  private list(): HTMLElement {
    const list = make("select", {
      attributes: { "aria-label": "Variable" },
      on: {
        change: () => {
          this.variable = this.figure.variables.find((one) => one.id === list.value)!;
          this.changed();
        },
      },
    });
    const groups = new Map<string, Variable[]>();
    for (const one of this.figure.variables) {
      groups.set(one.group, [...(groups.get(one.group) ?? []), one]);
    }
    for (const [group, variables] of groups) {
      const options = variables.map((one) =>
        make("option", { text: nameOf(one), attributes: { value: one.id } }),
      );
      if (options.length === 1) list.append(options[0]);
      else list.append(make("optgroup", { attributes: { label: group } }, ...options));
    }
    return make("label", { class: "field" }, make("span", { text: "Show" }), list);
  }

  render(width: number): SVGSVGElement {
    const { subjects } = this.scope.report;
    const present = this.variable.values
      .map((values, subject) => ({ values, subject }))
      .filter((one): one is { values: HeadValues; subject: number } => one.values !== null);
    const most = Math.max(...present.map((one) => one.values.value[0]?.length ?? 1));
    const total = present.reduce((sum, one) => sum + (one.values.value[0]?.length ?? 1), 0);
    const inRow = (width - present.length * (LEFT + 28)) / total;
    const alone = (width - LEFT - 4) / most;
    const cell = Math.max(9, Math.min(26, inRow >= 13 ? inRow : alone));
    const sizes = present.map(({ values }) => {
      const rows = values.value.length;
      const height = rows > 16 ? Math.min(cell, 15) : Math.min(cell, 24);
      const columns = values.value[0]?.length ?? 1;
      return { width: LEFT + columns * cell, height: TOP + rows * height, cell, row: height };
    });
    const flowed = flow(sizes, width, 28);
    const scale = this.scale();
    const root = canvas(width, flowed.height + 44, this.figure.title);
    const spots = new Spots(this.scope);
    present.forEach(({ values, subject }, i) => {
      const { x, y } = flowed.places[i];
      const group = svg("g", { transform: `translate(${x} ${y})` });
      group.append(heading(LEFT, 12, subjects[subject].title));
      this.cells(group, values, subject, sizes[i], scale, spots, i);
      root.append(group);
    });
    root.append(this.legend(scale, flowed.height + 14));
    spots.listen(root);
    return root;
  }

  private cells(
    group: SVGGElement,
    { value, low, high }: HeadValues,
    subject: number,
    size: { cell: number; row: number },
    scale: { low: number; high: number },
    spots: Spots,
    panel: number,
  ): void {
    const { layers } = this.scope.report.subjects[subject];
    const columns = value[0]?.length ?? 0;
    const gap = size.cell > 14 ? 1.5 : 0.75;
    const heads = everyNth(columns, (columns * size.cell) / 18);
    for (let head = 0; head < columns; head += heads) {
      const x = LEFT + (head + 0.5) * size.cell;
      group.append(text(x, TOP - 6, String(head), { "text-anchor": "middle", "font-size": 10 }));
    }
    const step = everyNth(value.length, (value.length * size.row) / 13);
    value.forEach((row, i) => {
      const y = TOP + i * size.row;
      if (i % step === 0) {
        const label = { "text-anchor": "end", "font-size": 10, "dominant-baseline": "central" };
        group.append(text(LEFT - 6, y + size.row / 2, String(layers[i] ?? i), label));
      }
      row.forEach((number, head) => {
        const layer = layers[i] ?? i;
        const x = LEFT + head * size.cell;
        const rect = svg("rect", {
          x: x + gap / 2,
          y: y + gap / 2,
          width: size.cell - gap,
          height: size.row - gap,
          rx: 1.5,
          class: "cell",
          fill: number === null ? "var(--missing)" : this.fill(number, scale),
        });
        const shown = withInterval(number, low?.[i][head], high?.[i][head], this.variable.share);
        const units = this.variable.share ? "" : this.variable.units;
        spots.add(rect, {
          heading: `L${layer} H${head}`,
          rows: [{ label: this.name, value: `${shown} ${units}`.trim() }],
          panel,
          x,
          y,
          head: [subject, layer, head],
        });
        group.append(rect);
      });
    });
  }

  private get name(): string {
    return nameOf(this.variable);
  }

  private scale(): { low: number; high: number } {
    let [low, high] = [0, 0];
    for (const values of this.variable.values) {
      for (const row of values?.value ?? []) {
        for (const number of row) {
          if (number === null) continue;
          low = Math.min(low, number);
          high = Math.max(high, number);
        }
      }
    }
    return low === 0 && high === 0 ? { low: 0, high: 1 } : { low, high };
  }

  private fill(number: number, { low, high }: { low: number; high: number }): string {
    if (low >= 0) return shade(number / high);
    const most = Math.max(-low, high);
    const base = number < 0 ? "--negative" : "--positive";
    return `color-mix(in oklab, var(${base}) ${Math.round((100 * Math.abs(number)) / most)}%, var(--panel))`;
  }

  private legend({ low, high }: { low: number; high: number }, y: number): SVGGElement {
    const group = svg("g", { transform: `translate(${LEFT} ${y})` });
    const steps = 40;
    const from = low < 0 ? -Math.max(-low, high) : 0;
    const to = Math.max(-low, high);
    for (let i = 0; i < steps; i++) {
      const number = from + ((i + 0.5) / steps) * (to - from);
      const fill = this.fill(number, { low, high });
      group.append(svg("rect", { x: i * 4, y: 0, width: 4.3, height: 9, fill }));
    }
    const share = this.variable.share;
    const round = (value: number) => Number(value.toPrecision(3));
    group.append(
      text(0, 22, axisNumber(round(from), share), { "font-size": 10 }),
      text(steps * 4, 22, axisNumber(round(to), share), { "text-anchor": "end", "font-size": 10 }),
      text(steps * 4 + 10, 9, this.name + (share ? "" : ` (${this.variable.units})`)),
    );
    return group;
  }

  csv(): (string | number | null)[][] {
    const { subjects } = this.scope.report;
    const rows: (string | number | null)[][] = [
      ["model", "layer", "head", this.variable.id, "low", "high"],
    ];
    this.variable.values.forEach((values, subject) => {
      values?.value.forEach((row, i) => {
        row.forEach((number, head) => {
          const bounds = [values.low?.[i][head] ?? null, values.high?.[i][head] ?? null];
          rows.push([
            subjects[subject].title,
            subjects[subject].layers[i],
            head,
            number,
            ...bounds,
          ]);
        });
      });
    });
    return rows;
  }
}

function nameOf({ group, label }: Variable): string {
  return label ? `${group}: ${label}` : group;
}
