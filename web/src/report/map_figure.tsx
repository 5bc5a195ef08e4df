// Map of heads: those that attend alike are near, those that matter are large.

import { useState } from "preact/hooks";
import type { MapFigure } from "../../generated/report.ts";
import { formatSmall } from "../data/format.ts";
import { dotStyle, layerShade, rolesByCount } from "../paint/roles.ts";
import { Segments, type Tip } from "../view/controls.tsx";
import type { Row } from "../view/download.ts";
import { FigureFrame } from "./figure_frame.tsx";
import * as svg from "./marks.tsx";
import { type ReportContext, useReport } from "./report_context.ts";

const RADIUS = 5;
const UNITS = "nats per token";

/** Radius of a dot: its area grows with the size of the effect. */
export function radiusOf(effect: number | null | undefined, largest: number): number {
  if (largest === 0) return RADIUS;
  return 3.5 + 7.5 * Math.sqrt(Math.abs(effect ?? 0) / largest);
}

type ColorBy = "role" | "layer";

export function MapFigureView({ figure }: { figure: MapFigure }) {
  const context = useReport();
  const [by, setBy] = useState<ColorBy>("role");
  const controls = (
    <Segments<ColorBy>
      kind="segments"
      label="Color of the points"
      value={by}
      options={[
        ["role", "By role"],
        ["layer", "By layer"],
      ]}
      choose={setBy}
    />
  );
  return (
    <FigureFrame
      figure={figure}
      controls={controls}
      csv={() => mapRows(figure, context)}
      draw={(width) => drawMap(figure, context, by, width)}
    />
  );
}

function drawMap({ panels, title }: MapFigure, context: ReportContext, by: ColorBy, width: number) {
  const { size } = svg.columnsFor(panels.length, width, 330, 20);
  const height = Math.min(size * 0.78, 460);
  const names = rolesByCount(panels.flatMap((panel) => panel.role));
  const legend =
    by === "role"
      ? svg.roleLegend(names, width)
      : { element: <svg.Label x={0} y={10} text="stronger: later layers" />, height: 10 };
  const effects = panels.flatMap((panel) => panel.effect ?? []);
  const largest = Math.max(0, ...effects.map((effect) => Math.abs(effect ?? 0)));
  const below = legend.height + (largest > 0 ? 18 : 0);
  const start = below + 16;
  const sizes = panels.map(() => ({ width: size, height: height + 40 }));
  const flowed = svg.flow(sizes, width, 20);
  const spots = new svg.Spots(context);
  const sizeNote = `size: by how much the loss changes without the head, up to ${formatSmall(largest)} ${UNITS}`;
  return (
    <svg.Canvas width={width} height={start + flowed.height} label={title} spots={spots}>
      {legend.element}
      {largest > 0 && <svg.Label x={0} y={below} text={sizeNote} />}
      {panels.map((panel, i) => {
        const { title: name, layers } = context.report.subjects[panel.subject];
        const [x0, x1] = [Math.min(...panel.x), Math.max(...panel.x)];
        const [y0, y1] = [Math.min(...panel.y), Math.max(...panel.y)];
        const scale = Math.min((size - 24) / (x1 - x0 || 1), (height - 24) / (y1 - y0 || 1));
        const strength = (k: number) => Math.abs(panel.effect?.[k] ?? 0);
        // Small dots lie on large ones.
        const order = [...panel.layer.keys()].sort((a, b) => strength(b) - strength(a));
        return (
          <g key={i} transform={svg.shift(flowed.places[i].x, start + flowed.places[i].y)}>
            <svg.Heading x={0} y={12} text={name} />
            <svg.Label x={0} y={28} text={panel.note} />
            {order.map((k) => {
              const [layer, head, effect] = [
                panel.layer[k],
                panel.head[k],
                panel.effect?.[k] ?? null,
              ];
              const cx = size / 2 + (panel.x[k] - (x0 + x1) / 2) * scale;
              const cy = 36 + height / 2 - (panel.y[k] - (y0 + y1) / 2) * scale;
              const { class: kind, ...style } =
                by === "role"
                  ? dotStyle(panel.role[k], names)
                  : { class: "dot", fill: layerShade(layer, layers) };
              const rows: Tip["rows"][number][] = [
                ["role", panel.role[k]],
                ["cluster", String(panel.cluster[k] + 1)],
              ];
              if (effect !== null)
                rows.push(["effect on the loss", `${formatSmall(effect)} ${UNITS}`]);
              const spot = spots.add(String(kind), {
                ...{ heading: `L${layer} H${head}`, rows, panel: i, x: cx, y: cy },
                head: [panel.subject, layer, head],
              });
              const place = svg.round({ cx, cy, r: radiusOf(effect, largest) });
              return <circle key={k} {...place} {...style} {...spot} />;
            })}
          </g>
        );
      })}
    </svg.Canvas>
  );
}

function mapRows({ panels }: MapFigure, context: ReportContext): Row[] {
  const rows: Row[] = [["model", "layer", "head", "x", "y", "role", "cluster", "effect"]];
  for (const { subject, layer, head, x, y, role, cluster, effect } of panels) {
    layer.forEach((number, k) => {
      const values = [x[k], y[k], role[k], cluster[k], effect?.[k] ?? null];
      rows.push([context.titleOf(subject), number, head[k], ...values]);
    });
  }
  return rows;
}
