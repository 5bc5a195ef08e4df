// Heads as points: two variables against one another, and the map of heads.

import { segments } from "../view/element.ts";
import type { MapFigure, PointsFigure } from "./data.ts";
import {
  COLORS,
  canvas,
  color,
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
import { axisTitle } from "./lines.ts";
import { axisNumber, shown, ticks } from "./number.ts";

const LEFT = 48;
const BOTTOM = 38;

/** Later layers are stronger; the first stay visible. */
function layerShade(layer: number, layers: readonly number[]): string {
  const last = Math.max(1, layers.length - 1);
  return shade(0.28 + (0.66 * layers.indexOf(layer)) / last);
}

export class Points implements Drawing {
  constructor(
    private readonly figure: PointsFigure,
    private readonly scope: Scope,
  ) {}

  render(width: number): SVGSVGElement {
    const { figure } = this;
    const across = Math.max(1, Math.min(figure.panels.length, Math.floor(width / 280)));
    const size = Math.min((width - (across - 1) * 20) / across, 430);
    const height = Math.min(size * 0.72, 270);
    const sizes = figure.panels.map(() => ({ width: size, height: height + 46 + BOTTOM }));
    const flowed = flow(sizes, width, 20);
    const domain = [this.domain("x"), this.domain("y")] as const;
    const root = canvas(width, flowed.height, figure.title);
    const spots = new Spots(this.scope);
    figure.panels.forEach((panel, i) => {
      const { x, y } = flowed.places[i];
      const subject = this.scope.report.subjects[panel.subject];
      const group = svg("g", { transform: `translate(${x} ${y})` });
      const inner = size - LEFT - 10;
      const top = 46;
      const px = (value: number) => LEFT + (value / domain[0]) * inner;
      const py = (value: number) => top + height - (value / domain[1]) * height;
      group.append(heading(LEFT, 12, subject.title), text(LEFT, 28, panel.note));
      for (const tick of ticks(0, domain[1], 5)) {
        group.append(
          svg("line", {
            x1: LEFT,
            x2: LEFT + inner,
            y1: py(tick),
            y2: py(tick),
            stroke: "var(--line)",
          }),
          text(LEFT - 6, py(tick) + 3.5, axisNumber(tick, figure.axes[1].share), {
            "text-anchor": "end",
            "font-size": 10,
          }),
        );
      }
      for (const tick of ticks(0, domain[0], 6)) {
        group.append(
          text(px(tick), top + height + 16, axisNumber(tick, figure.axes[0].share), {
            "text-anchor": "middle",
            "font-size": 10,
          }),
        );
      }
      group.append(
        text(LEFT + inner / 2, top + height + 32, axisTitle(figure.axes[0]), {
          "text-anchor": "middle",
        }),
        text(0, 0, axisTitle(figure.axes[1]), {
          "text-anchor": "middle",
          transform: `translate(11 ${top + height / 2}) rotate(-90)`,
        }),
      );
      panel.x.forEach((row, at) => {
        row.forEach((value, head) => {
          const other = panel.y[at][head];
          if (value === null || other === null) return;
          const layer = subject.layers[at];
          const dot = svg("circle", {
            cx: px(value),
            cy: py(other),
            r: 3.6,
            class: "dot",
            fill: layerShade(layer, subject.layers),
          });
          const rows = [
            {
              label: figure.axes[0].title,
              value: `${shown(value, figure.axes[0].share)} ${figure.axes[0].units}`,
            },
            { label: figure.axes[1].title, value: shown(other, figure.axes[1].share) },
          ];
          const place = { panel: i, x: px(value), y: py(other) };
          const heading = `L${layer} H${head}`;
          group.append(
            spots.add(dot, { heading, rows, ...place, head: [panel.subject, layer, head] }),
          );
        });
      });
      root.append(group);
    });
    spots.listen(root);
    return root;
  }

  private domain(axis: "x" | "y"): number {
    const all = this.figure.panels.flatMap((panel) => panel[axis].flat());
    return 1.04 * Math.max(...all.map((value) => value ?? 0), 1e-9);
  }

  csv(): (string | number | null)[][] {
    const names = this.figure.axes.map((axis) => axis.title);
    const rows: (string | number | null)[][] = [["model", "layer", "head", ...names]];
    for (const panel of this.figure.panels) {
      const subject = this.scope.report.subjects[panel.subject];
      panel.x.forEach((row, at) => {
        row.forEach((value, head) => {
          rows.push([subject.title, subject.layers[at], head, value, panel.y[at][head]]);
        });
      });
    }
    return rows;
  }
}

export class HeadMap implements Drawing {
  readonly controls: HTMLElement;
  private by: "behavior" | "layer" = "behavior";

  constructor(
    private readonly figure: MapFigure,
    private readonly scope: Scope,
    changed: () => void,
  ) {
    const choices = [
      { value: "behavior", label: "By behavior" },
      { value: "layer", label: "By layer" },
    ];
    const buttons = segments("Color of the points", choices, (value) => {
      this.by = value as typeof this.by;
      buttons.set(value);
      changed();
    });
    buttons.set(this.by);
    this.controls = buttons.element;
  }

  /** Behaviors in order of how many heads have them; those without one last. */
  private behaviors(): string[] {
    const counts = new Map<string, number>();
    for (const name of this.figure.panels.flatMap((panel) => panel.behavior)) {
      counts.set(name, (counts.get(name) ?? 0) + 1);
    }
    const names = [...counts.keys()].sort((a, b) => counts.get(b)! - counts.get(a)!);
    return [
      ...names.filter((name) => name !== "other"),
      ...names.filter((name) => name === "other"),
    ];
  }

  render(width: number): SVGSVGElement {
    const { panels } = this.figure;
    const across = Math.max(1, Math.min(panels.length, Math.floor(width / 330)));
    const size = (width - (across - 1) * 20) / across;
    const height = Math.min(size * 0.78, 460);
    const behaviors = this.behaviors();
    // More behaviors than colors: the rarer ones are rings.
    const look = (name: string): Record<string, string | number> => {
      const at = behaviors.indexOf(name);
      if (name === "other") return { class: "dot", fill: "var(--strong)" };
      if (at < COLORS) return { class: "dot", fill: color(at) };
      return { class: "ring", fill: "var(--paper)", stroke: color(at), "stroke-width": 2 };
    };
    const legend = svg("g");
    let [x, y] = [0, 10];
    if (this.by === "behavior") {
      for (const name of behaviors) {
        const room = textWidth(name, 11) + 30;
        if (x + room > width) [x, y] = [0, y + 18];
        legend.append(
          svg("circle", { cx: x + 5, cy: y - 4, r: 4.5, ...look(name) }),
          text(x + 14, y, name, { fill: "var(--ink)" }),
        );
        x += room;
      }
    } else legend.append(text(0, y, "stronger: later layers"));
    const start = y + 16;
    const flowed = flow(
      panels.map(() => ({ width: size, height: height + 40 })),
      width,
      20,
    );
    const root = canvas(width, start + flowed.height, this.figure.title);
    root.append(legend);
    const spots = new Spots(this.scope);
    panels.forEach((panel, i) => {
      const place = flowed.places[i];
      const subject = this.scope.report.subjects[panel.subject];
      const group = svg("g", { transform: `translate(${place.x} ${start + place.y})` });
      group.append(heading(0, 12, subject.title), text(0, 28, panel.note));
      const [x0, x1] = [Math.min(...panel.x), Math.max(...panel.x)];
      const [y0, y1] = [Math.min(...panel.y), Math.max(...panel.y)];
      const scale = Math.min((size - 24) / (x1 - x0 || 1), (height - 24) / (y1 - y0 || 1));
      panel.layer.forEach((layer, k) => {
        const cx = size / 2 + (panel.x[k] - (x0 + x1) / 2) * scale;
        const cy = 36 + height / 2 - (panel.y[k] - (y0 + y1) / 2) * scale;
        const style =
          this.by === "behavior"
            ? look(panel.behavior[k])
            : { class: "dot", fill: layerShade(layer, subject.layers) };
        const dot = svg("circle", { cx, cy, r: 5, ...style });
        const head = panel.head[k];
        const rows = [
          { label: "behavior", value: panel.behavior[k] },
          { label: "cluster", value: String(panel.cluster[k] + 1) },
        ];
        group.append(
          spots.add(dot, {
            heading: `L${layer} H${head}`,
            rows,
            panel: i,
            x: cx,
            y: cy,
            head: [panel.subject, layer, head],
          }),
        );
      });
      root.append(group);
    });
    spots.listen(root);
    return root;
  }

  csv(): (string | number | null)[][] {
    const rows: (string | number | null)[][] = [
      ["model", "layer", "head", "x", "y", "behavior", "cluster"],
    ];
    for (const panel of this.figure.panels) {
      const { title } = this.scope.report.subjects[panel.subject];
      panel.layer.forEach((layer, k) => {
        rows.push([
          title,
          layer,
          panel.head[k],
          panel.x[k],
          panel.y[k],
          panel.behavior[k],
          panel.cluster[k],
        ]);
      });
    }
    return rows;
  }
}
