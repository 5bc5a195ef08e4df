// The head finder: any two measures against one another, a point per head, brushed to a list.

import { axisNumber, axisTitle, shown, ticks } from "../data/format.ts";
import type { Row } from "../view/download.ts";
import { make, quiet, segments } from "../view/element.ts";
import type { FinderFigure, HeadId, Variable } from "./data.ts";
import {
  canvas,
  type Drawing,
  flow,
  heading,
  line,
  type Scope,
  type Spot,
  Spots,
  svg,
  text,
  tick,
} from "./draw.ts";
import { drawLegend, layerShade, lookOf, rolesByCount } from "./roles.ts";
import { nameOf, valueAt, variableList, variablesOf } from "./variable_list.ts";

const LEFT = 56;
const TOP = 40;
const BOTTOM = 40;
const NO_ROLE = "not measured";

interface Point {
  readonly id: HeadId;
  readonly role: string;
  readonly x: number;
  readonly y: number;
}

interface Area {
  readonly subject: number;
  readonly points: readonly Point[];
  /** From numbers to pixels. */
  readonly px: (value: number) => number;
  readonly py: (value: number) => number;
  readonly width: number;
  readonly height: number;
}

export class Finder implements Drawing {
  readonly controls: HTMLElement;
  private readonly variables: Variable[];
  private x: Variable;
  private y: Variable;
  private readonly list = make("div", { class: "brushed", attributes: { "aria-live": "polite" } });

  constructor(
    private readonly figure: FinderFigure,
    private readonly scope: Scope,
    private readonly changed: () => void,
  ) {
    this.variables = variablesOf(scope.report);
    const [first] = figure.presets;
    this.x = this.variable(first.x);
    this.y = this.variable(first.y);
    const across = variableList("Across", this.variables, (one) => this.show(one, this.y));
    const up = variableList("Up", this.variables, (one) => this.show(this.x, one));
    const choices = figure.presets.map(({ title }, i) => ({ value: String(i), label: title }));
    const presets = segments("Pairs of measures", choices, (value) => {
      const { x, y } = figure.presets[Number(value)];
      this.show(this.variable(x), this.variable(y));
    });
    this.follow = () => {
      across.set(this.x);
      up.set(this.y);
      const at = figure.presets.findIndex(({ x, y }) => x === this.x.id && y === this.y.id);
      presets.set(String(at));
    };
    this.follow();
    const swap = quiet("⇄", "Exchange the axes", () => this.show(this.y, this.x));
    const axes = make("div", { class: "chooser" }, across.element, swap, up.element);
    this.controls = make("div", {}, first.title ? presets.element : null, axes);
  }

  private readonly follow: () => void;

  private variable(id: string): Variable {
    return this.variables.find((one) => one.id === id) ?? this.variables[0];
  }

  private show(x: Variable, y: Variable): void {
    [this.x, this.y] = [x, y];
    this.follow();
    this.changed();
  }

  private points(subject: number): Point[] {
    const [x, y] = [this.x.values[subject], this.y.values[subject]];
    const roles = this.figure.panels[subject]?.roles;
    const { layers } = this.scope.report.subjects[subject];
    if (!x || !y) return [];
    return x.value.flatMap((row, i) =>
      row.flatMap((value, head) => {
        const other = y.value[i]?.[head];
        if (value === null || other === null || other === undefined) return [];
        const id: HeadId = [subject, layers[i] ?? i, head];
        return [{ id, role: roles?.[i]?.[head] ?? NO_ROLE, x: value, y: other }];
      }),
    );
  }

  render(width: number): HTMLElement {
    const { subjects } = this.scope.report;
    const of = subjects.map((_, subject) => ({ subject, points: this.points(subject) }));
    const shownPanels = of.filter(({ points }) => points.length > 0);
    const all = shownPanels.flatMap(({ points }) => points);
    const roles = rolesByCount(all.map((point) => point.role)).filter((name) => name !== NO_ROLE);
    const legend = drawLegend(roles, width);
    const start = legend.height + 14;
    const across = Math.max(1, Math.min(shownPanels.length, Math.floor(width / 300)));
    const size = Math.min((width - (across - 1) * 24) / across, 620);
    const height = Math.min(size * 0.72, 360);
    const flowed = flow(
      shownPanels.map(() => ({ width: size, height: TOP + height + BOTTOM })),
      width,
      24,
    );
    const domains = [span(all.map((p) => p.x)), span(all.map((p) => p.y))] as const;
    const root = canvas(width, start + flowed.height, this.figure.title);
    root.append(legend.element);
    const spots = new Spots(this.scope);
    shownPanels.forEach(({ subject, points }, panel) => {
      const { x, y } = flowed.places[panel];
      const inner = size - LEFT - 10;
      const area: Area = {
        subject,
        points,
        width: inner,
        height,
        px: (value) => LEFT + ((value - domains[0][0]) / (domains[0][1] - domains[0][0])) * inner,
        py: (value) =>
          TOP + height - ((value - domains[1][0]) / (domains[1][1] - domains[1][0])) * height,
      };
      const group = svg("g", { transform: `translate(${x} ${start + y})` });
      group.append(heading(LEFT, 12, subjects[subject].title), text(LEFT, 28, this.note(subject)));
      this.axes(group, area, domains);
      this.brush(group, area);
      for (const point of points) group.append(spots.add(...this.dot(point, area, roles, panel)));
      root.append(group);
    });
    spots.listen(root);
    this.list.replaceChildren();
    return make("div", {}, root, this.list);
  }

  private note(subject: number): string {
    const found = this.figure.presets.find(({ x, y }) => x === this.x.id && y === this.y.id);
    return found?.notes[subject] ?? "";
  }

  private axes(
    group: SVGGElement,
    { px, py, width, height }: Area,
    [across, up]: readonly (readonly [number, number])[],
  ): void {
    for (const value of ticks(up[0], up[1], 5)) {
      const at = py(value);
      const stroke = value === 0 && up[0] < 0 ? "var(--soft)" : "var(--line)";
      group.append(
        line([LEFT, at], [LEFT + width, at], { stroke }),
        tick(LEFT - 6, at + 3.5, axisNumber(value, this.y.share), "end"),
      );
    }
    for (const value of ticks(across[0], across[1], 6)) {
      group.append(tick(px(value), TOP + height + 16, axisNumber(value, this.x.share)));
    }
    const [x, y] = [this.x, this.y].map((one) => axisTitle({ ...one, title: nameOf(one) }));
    const turned = `translate(11 ${TOP + height / 2}) rotate(-90)`;
    group.append(
      text(LEFT + width / 2, TOP + height + 33, x, { "text-anchor": "middle" }),
      text(0, 0, y, { "text-anchor": "middle", transform: turned }),
    );
  }

  private dot(
    { id, role, x, y }: Point,
    { px, py }: Area,
    roles: readonly string[],
    panel: number,
  ): [SVGCircleElement, Spot] {
    const [subject, layer, head] = id;
    const { layers } = this.scope.report.subjects[subject];
    const look =
      role === NO_ROLE ? { class: "dot", fill: layerShade(layer, layers) } : lookOf(role, roles);
    const row = layers.indexOf(layer);
    const rows = [this.x, this.y].flatMap((one) => valueAt(one, subject, row, head) ?? []);
    if (role !== NO_ROLE) rows.push({ label: "role", value: role });
    const at = { panel, x: px(x), y: py(y) };
    const circle = svg("circle", { cx: at.x, cy: at.y, r: 4.2, ...look });
    return [circle, { heading: `L${layer} H${head}`, rows, ...at, head: id }];
  }

  /** A rectangle drawn with the pointer lists the heads in it. */
  private brush(group: SVGGElement, area: Area): void {
    const ground = svg("rect", {
      x: LEFT,
      y: TOP,
      width: area.width,
      height: area.height,
      fill: "transparent",
      class: "ground",
    });
    const frame = svg("rect", { class: "brush", fill: "var(--ink)", "fill-opacity": 0.08 });
    let from: DOMPoint | null = null;
    const place = (event: PointerEvent) =>
      new DOMPoint(event.clientX, event.clientY).matrixTransform(
        (group.getScreenCTM() ?? new DOMMatrix()).inverse(),
      );
    ground.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch") return; // a finger scrolls the page
      from = place(event);
      ground.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    ground.addEventListener("pointermove", (event) => {
      if (!from) return;
      const to = place(event);
      const box = {
        x: Math.min(from.x, to.x),
        y: Math.min(from.y, to.y),
        width: Math.abs(to.x - from.x),
        height: Math.abs(to.y - from.y),
      };
      for (const [name, value] of Object.entries(box)) frame.setAttribute(name, String(value));
      this.name(area, box);
    });
    ground.addEventListener("pointerup", (event) => {
      const to = place(event);
      if (from && Math.hypot(to.x - from.x, to.y - from.y) < 4) {
        frame.setAttribute("width", "0");
        this.list.replaceChildren();
      }
      from = null;
    });
    group.append(ground, frame);
  }

  private name(
    { points, px, py }: Area,
    box: { x: number; y: number; width: number; height: number },
  ): void {
    const inside = points.filter(
      ({ x, y }) =>
        px(x) >= box.x &&
        px(x) <= box.x + box.width &&
        py(y) >= box.y &&
        py(y) <= box.y + box.height,
    );
    inside.sort((a, b) => b.y - a.y);
    const buttons = inside.map(({ id, role, y }) => {
      const name = `L${id[1]} H${id[2]}`;
      const said = `${name} ${shown(y, this.y.share)}${role === NO_ROLE ? "" : ` · ${role}`}`;
      return quiet(said, `The card of ${name}`, () => this.scope.openCard(id));
    });
    const count = inside.length === 1 ? "One head" : `${inside.length} heads`;
    this.list.replaceChildren(make("strong", { text: `${count}. ` }), ...buttons);
  }

  csv(): Row[] {
    const names = [nameOf(this.x), nameOf(this.y)];
    const rows: Row[] = [["model", "layer", "head", "role", ...names]];
    this.scope.report.subjects.forEach(({ title }, subject) => {
      for (const { id, role, x, y } of this.points(subject)) {
        rows.push([title, id[1], id[2], role, x, y]);
      }
    });
    return rows;
  }
}

/** From 0, or from below it, with room above the highest. */
function span(values: readonly number[]): readonly [number, number] {
  const low = Math.min(0, ...values);
  const high = Math.max(0, ...values);
  const room = 0.04 * (high - low) || 1;
  return [low < 0 ? low - room : 0, high + room];
}
