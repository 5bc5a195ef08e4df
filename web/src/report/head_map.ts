// The map of heads: those that attend alike are near.

import { segments } from "../view/element.ts";
import type { Row } from "../view/saving.ts";
import type { MapFigure } from "./data.ts";
import { canvas, type Drawing, flow, heading, type Scope, Spots, svg, text } from "./draw.ts";
import { drawLegend, layerShade, lookOf, rolesByCount } from "./roles.ts";

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

  render(width: number): SVGSVGElement {
    const { panels } = this.figure;
    const across = Math.max(1, Math.min(panels.length, Math.floor(width / 330)));
    const size = (width - (across - 1) * 20) / across;
    const height = Math.min(size * 0.78, 460);
    const roles = rolesByCount(panels.flatMap((panel) => panel.behavior));
    const legend =
      this.by === "behavior"
        ? drawLegend(roles, width)
        : { element: text(0, 10, "stronger: later layers"), height: 10 };
    const start = legend.height + 16;
    const flowed = flow(
      panels.map(() => ({ width: size, height: height + 40 })),
      width,
      20,
    );
    const root = canvas(width, start + flowed.height, this.figure.title);
    root.append(legend.element);
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
            ? lookOf(panel.behavior[k], roles)
            : { class: "dot", fill: layerShade(layer, subject.layers) };
        const dot = svg("circle", { cx, cy, r: 5, ...style });
        const head = panel.head[k];
        const rows = [
          { label: "behavior", value: panel.behavior[k] },
          { label: "cluster", value: String(panel.cluster[k] + 1) },
        ];
        const spot = { heading: `L${layer} H${head}`, rows, panel: i, x: cx, y: cy };
        group.append(spots.add(dot, { ...spot, head: [panel.subject, layer, head] }));
      });
      root.append(group);
    });
    spots.listen(root);
    return root;
  }

  csv(): Row[] {
    const rows: Row[] = [["model", "layer", "head", "x", "y", "behavior", "cluster"]];
    for (const { subject, layer, head, x, y, behavior, cluster } of this.figure.panels) {
      const { title } = this.scope.report.subjects[subject];
      layer.forEach((own, k) => {
        rows.push([title, own, head[k], x[k], y[k], behavior[k], cluster[k]]);
      });
    }
    return rows;
  }
}
