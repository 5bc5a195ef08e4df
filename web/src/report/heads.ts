// Layer × head maps: what each head does, or one variable at a time, all models on one scale.

import { axisNumber, axisTitle, everyNth } from "../data/format.ts";
import { ROLES, type RoleLook, roleLook } from "../paint/roles.ts";
import type { Row } from "../view/download.ts";
import { make } from "../view/element.ts";
import type { HeadsFigure, HeadValues, Variable } from "./data.ts";
import {
  canvas,
  colorScale,
  type Drawing,
  flow,
  flowNames,
  heading,
  SCALE,
  type Scope,
  Spots,
  shade,
  svg,
  text,
  tick,
} from "./draw.ts";
import type { TooltipRow } from "./tooltip.ts";
import { nameOf, valueAt, variableList } from "./variable_list.ts";

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

interface Range {
  readonly low: number;
  readonly high: number;
}

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
    const present = this.variable.values.flatMap((values, subject) =>
      values ? [{ values, subject, across: values.value[0]?.length ?? 1 }] : [],
    );
    const most = Math.max(...present.map(({ across }) => across));
    const total = present.reduce((sum, { across }) => sum + across, 0);
    const inRow = (width - present.length * (LEFT + 28)) / total;
    const alone = (width - LEFT - 4) / most;
    const cell = Math.max(9, Math.min(26, inRow >= 13 ? inRow : alone));
    const sizes = present.map(({ values, across }) => {
      const rows = values.value.length;
      const row = Math.min(cell, rows > 16 ? 15 : 24);
      return { width: LEFT + across * cell, height: TOP + rows * row, cell, row };
    });
    const flowed = flow(sizes, width, 28);
    const range = this.range();
    const below = flowed.height + 14;
    const legend = this.showsRoles ? this.roleLegend(below, width) : this.scale(range, below);
    const root = canvas(width, below + legend.height, this.figure.title);
    const spots = new Spots(this.scope);
    present.forEach(({ values, subject }, i) => {
      const { x, y } = flowed.places[i];
      const group = svg("g", { transform: `translate(${x} ${y})` });
      group.append(heading(LEFT, 12, subjects[subject].title));
      this.cells(group, values, subject, sizes[i], range, spots, i);
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
    range: Range,
    spots: Spots,
    panel: number,
  ): void {
    const { layers } = this.scope.report.subjects[subject];
    const columns = value[0]?.length ?? 0;
    const gap = size.cell > 14 ? 1.5 : 0.75;
    const heads = everyNth(columns, (columns * size.cell) / 18);
    for (let head = 0; head < columns; head += heads) {
      group.append(tick(LEFT + (head + 0.5) * size.cell, TOP - 6, String(head)));
    }
    const step = everyNth(value.length, (value.length * size.row) / 13);
    const central = { "text-anchor": "middle", "dominant-baseline": "central" };
    value.forEach((row, i) => {
      const y = TOP + i * size.row;
      const layer = layers[i] ?? i;
      if (i % step === 0) {
        const label = { ...central, "text-anchor": "end", "font-size": 10 };
        group.append(text(LEFT - 6, y + size.row / 2, String(layer), label));
      }
      row.forEach((number, head) => {
        const x = LEFT + head * size.cell;
        const rect = svg("rect", {
          x: x + gap / 2,
          y: y + gap / 2,
          width: size.cell - gap,
          height: size.row - gap,
          rx: 1.5,
          class: "cell",
          ...this.look(subject, i, head, number, range),
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
          const fill = QUIET[role.id] ? "var(--soft)" : `var(--on-${role.id})`;
          const sign = { ...central, "pointer-events": "none", fill };
          group.append(text(x + size.cell / 2, y + size.row / 2, role.sign, sign));
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
    range: Range,
  ): Record<string, string> {
    if (!this.showsRoles) {
      return { fill: number === null ? "var(--missing)" : fillOf(number, range) };
    }
    const { id } = this.roleAt(subject, row, head);
    if (id === "unnamed") return { fill: "var(--panel)", stroke: "var(--strong)" };
    const share = QUIET[id] ?? 100;
    return { fill: `color-mix(in oklab, var(--role-${id}) ${share}%, var(--panel))` };
  }

  /** What the tooltip says of a head. */
  private told(subject: number, row: number, head: number): TooltipRow[] {
    const shown = this.showsRoles ? this.figure.variables.slice(0, TOLD) : [this.variable];
    const rows = shown.flatMap((variable) => valueAt(variable, subject, row, head) ?? []);
    if (!this.showsRoles) return rows;
    return [{ label: this.roleAt(subject, row, head).name, value: "" }, ...rows];
  }

  /** The roles that occur, each with its color, its sign and how many heads have it. */
  private roleLegend(y: number, width: number): { element: SVGGElement; height: number } {
    const counts = new Map<string, number>();
    for (const role of this.figure.roles.flatMap((table) => table?.flat() ?? [])) {
      const { id } = roleLook(role || null);
      counts.set(id, (counts.get(id) ?? 0) + 1);
    }
    const element = svg("g", { transform: `translate(${LEFT} ${y})` });
    const roles = ROLES.filter(({ id }) => counts.has(id));
    const labels = roles.map(({ id, name }) => `${name} ${counts.get(id)}`);
    const room = { room: 36, width: width - LEFT, step: 20 };
    const last = flowNames(labels, room, (label, x, line, i) => {
      const { id, sign } = roles[i];
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
    });
    return { element, height: last + 18 };
  }

  private range(): Range {
    let [low, high] = [0, 0];
    for (const values of this.variable.values) {
      for (const number of values?.value.flat() ?? []) {
        low = Math.min(low, number ?? 0);
        high = Math.max(high, number ?? 0);
      }
    }
    return low === 0 && high === 0 ? { low: 0, high: 1 } : { low, high };
  }

  /** The colors of the range; of numbers of both signs as far below 0 as above it. */
  private scale(range: Range, y: number): { element: SVGGElement; height: number } {
    const to = Math.max(-range.low, range.high);
    const from = range.low < 0 ? -to : 0;
    const end = (value: number) => axisNumber(Number(value.toPrecision(3)), this.variable.share);
    const fill = (share: number) => fillOf(from + share * (to - from), range);
    const element = colorScale(LEFT, y, fill, [end(from), end(to)]);
    const title = axisTitle({ ...this.variable, title: nameOf(this.variable) });
    element.append(text(SCALE + 10, 9, title));
    return { element, height: 30 };
  }

  csv(): Row[] {
    const { subjects } = this.scope.report;
    const rows: Row[] = [["model", "layer", "head", "role", this.variable.id, "low", "high"]];
    this.variable.values.forEach((values, subject) => {
      const { title, layers } = subjects[subject];
      values?.value.forEach((row, i) => {
        row.forEach((number, head) => {
          const role = this.figure.roles[subject]?.[i]?.[head] ?? "";
          const bounds = [values.low?.[i][head] ?? null, values.high?.[i][head] ?? null];
          rows.push([title, layers[i], head, role, number, ...bounds]);
        });
      });
    });
    return rows;
  }
}

function fillOf(number: number, { low, high }: Range): string {
  if (low >= 0) return shade(number / high);
  const share = Math.round((100 * Math.abs(number)) / Math.max(-low, high));
  return `color-mix(in oklab, var(${number < 0 ? "--negative" : "--positive"}) ${share}%, var(--panel))`;
}
