// Documents in which chosen heads have their highest weights.

import type { Arc, ExemplarsFigure } from "../../generated/report.ts";
import { ARC_FONT, arcText } from "../layout/arcs_layout.ts";
import { textWidth } from "../paint/painter.ts";
import type { Row } from "../view/download.ts";
import { FigureFrame } from "./figure_frame.tsx";
import * as svg from "./marks.tsx";
import { type ReportContext, useReport } from "./report_context.ts";

/** Draw a document with one arc; returns the group and its height. */
export function drawExemplar(
  { report }: ReportContext,
  arc: Arc,
  width: number,
  color = "var(--positive)",
) {
  const { tokens, height, paths } = arcText(report.documents[arc.document], arc, width);
  const stroke = { fill: "none", stroke: color, "stroke-linecap": "round" } as const;
  const element = (
    <>
      {paths.map((path) => (
        <path key={path} d={path} {...stroke} stroke-width={1 + 2.5 * (arc.weight ?? 0)} />
      ))}
      <svg.Label x={0} y={tokens[0]?.y ?? 0} text={(arc.weight ?? 0).toFixed(2)} size={12} />
      {tokens.map(({ x, y, text, position, width: length }) => {
        const isEnd = position === arc.key || position === arc.query;
        const fill = position === arc.key ? color : "var(--ink)";
        return (
          <g key={position}>
            <svg.Label x={x} y={y} text={text} size={ARC_FONT} fill={fill} isBold={isEnd} />
            {isEnd && (
              <svg.Line from={[x, y + 4]} to={[x + length, y + 4]} stroke={fill} width={1.5} />
            )}
          </g>
        );
      })}
    </>
  );
  return { element, height };
}

export function ExemplarsFigureView({ figure }: { figure: ExemplarsFigure }) {
  const context = useReport();
  const draw = (width: number) => drawExemplars(figure, context, width);
  return <FigureFrame figure={figure} csv={() => exemplarRows(figure, context)} draw={draw} />;
}

/** Draw each head on a canvas, so that paper may break between them. */
function drawExemplars(figure: ExemplarsFigure, context: ReportContext, width: number) {
  const spots = new svg.Spots(context);
  const drawHead = (panel: ExemplarsFigure["panels"][number], i: number, k: number) => {
    const { layer, head, why, exemplars } = panel.heads[k];
    const top = k === 0 ? 26 : 0;
    const name = `L${layer} H${head}`;
    const spot = { heading: name, rows: [[why, ""] as const], panel: i, x: 0, y: k };
    let y = top + 18;
    const drawn = exemplars.map((arc, n) => {
      const { element, height } = drawExemplar(context, arc, width);
      const group = (
        <g key={n} transform={svg.shift(0, y)}>
          {element}
        </g>
      );
      y += height;
      return group;
    });
    return (
      <svg.Canvas key={k} width={width} height={y + 12} label={`${name}, ${why}`} spots={spots}>
        {k === 0 && <svg.Heading x={0} y={13} text={context.titleOf(panel.subject)} size={13} />}
        <text
          y={top + 12}
          fill="var(--accent)"
          font-size={12.5}
          font-weight={600}
          {...spots.add("link", { ...spot, head: [panel.subject, layer, head] })}
        >
          {name}
        </text>
        <svg.Label x={textWidth(name, 12.5, true) + 10} y={top + 12} text={why} size={12} />
        {drawn}
      </svg.Canvas>
    );
  };
  return (
    <div class="pieces">
      {figure.panels.flatMap((panel, i) => panel.heads.map((_, k) => drawHead(panel, i, k)))}
    </div>
  );
}

function exemplarRows({ panels }: ExemplarsFigure, context: ReportContext): Row[] {
  const rows: Row[] = [
    ["model", "layer", "head", "weight", "query", "key", "query token", "key token", "text"],
  ];
  for (const { subject, heads } of panels) {
    for (const { layer, head, exemplars } of heads) {
      for (const { weight, query, key, document } of exemplars) {
        const tokens = context.report.documents[document];
        const text = tokens.join(tokens.some((token) => token.startsWith(" ")) ? "" : " ");
        const place = [context.titleOf(subject), layer, head, weight, query, key];
        rows.push([...place, tokens[query], tokens[key], text]);
      }
    }
  }
  return rows;
}
