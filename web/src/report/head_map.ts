// The map of heads: those that attend alike are near, those that matter are large.

import { plainNumber } from "../data/format.ts";
import type { Row } from "../view/download.ts";
import { segments } from "../view/element.ts";
import type { MapFigure } from "./data.ts";
import { canvas, type Drawing, flow, heading, type Scope, Spots, svg, text } from "./draw.ts";
import { drawLegend, layerShade, lookOf, rolesByCount } from "./roles.ts";

const RADIUS = 5;
const UNITS = "nats per token";

/** Radius of a point: its area grows with the size of its effect, from a small one for none. */
export function radiusOf(effect: number | null | undefined, largest: number): number {
  if (largest === 0) return RADIUS;
  return 3.5 + 7.5 * Math.sqrt(Math.abs(effect ?? 0) / largest);
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

  render(width: number): SVGSVGElement {
    const { panels } = this.figure;
    const across = Math.max(1, Math.min(panels.length, Math.floor(width / 330)));
    const size = (width - (across - 1) * 20) / across;
    const height = Math.min(size * 0.78, 460);
    const roles = rolesByCount(panels.flatMap((panel) => panel.behavior));
    const legend =
      this.by === "behavior"
        ? drawLegend(roles, width)
        : { element: svg("g", {}, text(0, 10, "stronger: later layers")), height: 10 };
    const effects = panels.flatMap((panel) => panel.effect ?? []);
    const largest = Math.max(0, ...effects.map((effect) => Math.abs(effect ?? 0)));
    if (largest > 0) {
      const most = `${plainNumber(largest)} ${UNITS}`;
      legend.height += 18;
      legend.element.append(
        text(
          0,
          legend.height,
          `size: by how much the loss changes without the head, up to ${most}`,
        ),
      );
    }
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
      const order = panel.layer.map((_, k) => k);
      const strength = (k: number) => Math.abs(panel.effect?.[k] ?? 0);
      order.sort((a, b) => strength(b) - strength(a)); // small points lie on large ones
      for (const k of order) {
        const layer = panel.layer[k];
        const cx = size / 2 + (panel.x[k] - (x0 + x1) / 2) * scale;
        const cy = 36 + height / 2 - (panel.y[k] - (y0 + y1) / 2) * scale;
        const style =
          this.by === "behavior"
            ? lookOf(panel.behavior[k], roles)
            : { class: "dot", fill: layerShade(layer, subject.layers) };
        const dot = svg("circle", { cx, cy, r: radiusOf(panel.effect?.[k], largest), ...style });
        const head = panel.head[k];
        const rows = [
          { label: "behavior", value: panel.behavior[k] },
          { label: "cluster", value: String(panel.cluster[k] + 1) },
        ];
        const effect = panel.effect?.[k] ?? null;
        if (effect !== null) {
          rows.push({ label: "effect on the loss", value: `${plainNumber(effect)} ${UNITS}` });
        }
        const spot = { heading: `L${layer} H${head}`, rows, panel: i, x: cx, y: cy };
        group.append(spots.add(dot, { ...spot, head: [panel.subject, layer, head] }));
      }
      root.append(group);
    });
    spots.listen(root);
    return root;
  }

  csv(): Row[] {
    const rows: Row[] = [["model", "layer", "head", "x", "y", "behavior", "cluster", "effect"]];
    for (const { subject, layer, head, x, y, behavior, cluster, effect } of this.figure.panels) {
      const { title } = this.scope.report.subjects[subject];
      layer.forEach((own, k) => {
        const at = [x[k], y[k], behavior[k], cluster[k], effect?.[k] ?? null];
        rows.push([title, own, head[k], ...at]);
      });
    }
    return rows;
  }
}
