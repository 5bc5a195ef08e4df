// Layer × head maps: what each head does, or one variable at a time, all models on one scale.

import { ROLES, type RoleLook, roleLook } from "../paint/roles.ts";
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
  textWidth,
} from "./draw.ts";
import { axisNumber, everyNth, withInterval } from "./number.ts";
import { nameOf, variableList } from "./variable_list.ts";

const LEFT = 26;
const TOP = 34;

/** Roles that are resting places are quiet, as on the explorer's page. */
const QUIET: Partial<Record<string, number>> = {
  first: 36,
  special: 36,
  punctuation: 36,
  broad: 46,
};
/** Values that a head is told with where cells show roles. */
const TOLD = 3;

export class Heads implements Drawing {
  readonly controls: HTMLElement;
  private variable: Variable;
  private showsRoles: boolean;

  constructor(
    private readonly figure: HeadsFigure,
    private readonly scope: Scope,
    changed: () => void,
  ) {
    this.variable = figure.variables[0];
    this.showsRoles = figure.roles.some((roles) => roles !== null);
    const choose = (variable: Variable | null) => {
      this.variable = variable ?? figure.variables[0];
      this.showsRoles = variable === null;
      changed();
    };
    const roles = { label: "What each head does", choose: () => choose(null) };
    const first = this.showsRoles ? roles : undefined;
    const { element } = variableList("Show", figure.variables, choose, first);
    this.controls = make("div", { class: "chooser" }, element);
  }

  get equation(): string {
    return this.showsRoles ? "" : this.variable.name;
  }

  get about(): { meaning: string; paper: string } {
    if (!this.showsRoles) return this.variable;
    const meaning = "Named where at least half of its attention over the corpus goes one way.";
    return { meaning, paper: "" };
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
    const legend = this.showsRoles
      ? this.roleLegend(flowed.height + 14, width)
      : { element: this.legend(scale, flowed.height + 14), height: 30 };
    const root = canvas(width, flowed.height + 14 + legend.height, this.figure.title);
    const spots = new Spots(this.scope);
    present.forEach(({ values, subject }, i) => {
      const { x, y } = flowed.places[i];
      const group = svg("g", { transform: `translate(${x} ${y})` });
      group.append(heading(LEFT, 12, subjects[subject].title));
      this.cells(group, values, subject, sizes[i], scale, spots, i);
      root.append(group);
    });
    root.append(legend.element);
    spots.listen(root);
    return root;
  }

  private cells(
    group: SVGGElement,
    { value }: HeadValues,
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
          ...this.look(subject, i, head, number, scale),
        });
        spots.add(rect, {
          heading: `L${layer} H${head}`,
          rows: this.told(subject, i, head),
          panel,
          x,
          y,
          head: [subject, layer, head],
        });
        group.append(rect);
        const role = this.showsRoles ? this.roleAt(subject, i, head) : null;
        if (role && role.id !== "unnamed" && size.row >= 12) {
          group.append(
            text(x + size.cell / 2, y + size.row / 2, role.sign, {
              "text-anchor": "middle",
              "dominant-baseline": "central",
              "pointer-events": "none",
              fill: QUIET[role.id] ? "var(--soft)" : `var(--on-${role.id})`,
            }),
          );
        }
      });
    });
  }

  private roleAt(subject: number, row: number, head: number): RoleLook {
    return roleLook(this.figure.roles[subject]?.[row]?.[head] || null);
  }

  private look(
    subject: number,
    row: number,
    head: number,
    number: number | null,
    scale: { low: number; high: number },
  ): Record<string, string> {
    if (!this.showsRoles) {
      return { fill: number === null ? "var(--missing)" : this.fill(number, scale) };
    }
    const { id } = this.roleAt(subject, row, head);
    if (id === "unnamed") return { fill: "var(--panel)", stroke: "var(--strong)" };
    const share = QUIET[id] ?? 100;
    return { fill: `color-mix(in oklab, var(--role-${id}) ${share}%, var(--panel))` };
  }

  /** What the tooltip says of a head. */
  private told(subject: number, row: number, head: number): { label: string; value: string }[] {
    const { variables } = this.figure;
    const shown = this.showsRoles ? variables.slice(0, TOLD) : [this.variable];
    const rows = shown.flatMap((variable) => {
      const { value, low, high } = variable.values[subject] ?? {};
      if (!value) return [];
      const number = value[row]?.[head] ?? null;
      const bounded = withInterval(number, low?.[row][head], high?.[row][head], variable.share);
      const units = variable.share ? "" : variable.units;
      return [{ label: nameOf(variable), value: `${bounded} ${units}`.trim() }];
    });
    if (!this.showsRoles) return rows;
    return [{ label: this.roleAt(subject, row, head).name, value: "" }, ...rows];
  }

  /** The roles that occur, each with its color, its sign and how many heads have it. */
  private roleLegend(y: number, width: number): { element: SVGGElement; height: number } {
    const counts = new Map<string, number>();
    this.figure.roles.forEach((table) => {
      table?.flat().forEach((role) => {
        const { id } = roleLook(role || null);
        counts.set(id, (counts.get(id) ?? 0) + 1);
      });
    });
    const element = svg("g", { transform: `translate(${LEFT} ${y})` });
    let [x, line] = [0, 0];
    for (const { id, sign, name } of ROLES.filter((role) => counts.has(role.id))) {
      const label = `${name} ${counts.get(id)}`;
      const room = textWidth(label, 11) + 36;
      if (x + room > width - LEFT) [x, line] = [0, line + 20];
      const isHollow = id === "unnamed";
      const fill = isHollow ? "var(--panel)" : `var(--role-${id})`;
      const stroke = isHollow ? "var(--soft)" : "none";
      element.append(
        svg("rect", { x, y: line, width: 15, height: 15, rx: 4, fill, stroke }),
        text(x + 7.5, line + 7.5, sign, {
          "text-anchor": "middle",
          "dominant-baseline": "central",
          fill: `var(--on-${id})`,
        }),
        text(x + 20, line + 11.5, label, { fill: "var(--ink)" }),
      );
      x += room;
    }
    return { element, height: line + 18 };
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
      ["model", "layer", "head", "role", this.variable.id, "low", "high"],
    ];
    this.variable.values.forEach((values, subject) => {
      values?.value.forEach((row, i) => {
        row.forEach((number, head) => {
          const bounds = [values.low?.[i][head] ?? null, values.high?.[i][head] ?? null];
          rows.push([
            subjects[subject].title,
            subjects[subject].layers[i],
            head,
            this.figure.roles[subject]?.[i]?.[head] ?? "",
            number,
            ...bounds,
          ]);
        });
      });
    });
    return rows;
  }
}
