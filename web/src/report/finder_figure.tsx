// Head finder: any two variables against one another, a dot per head, a brush to list heads.

import { useRef, useState } from "preact/hooks";
import type { FinderFigure, HeadId, VariableEntry } from "../../generated/report.ts";
import { axisNumber, axisTitle, formatValue, ticks } from "../data/format.ts";
import type { Box } from "../layout/scene.ts";
import { dotStyle, layerShade, rolesByCount } from "../paint/roles.ts";
import { Segments, type Tip } from "../view/controls.tsx";
import type { Row } from "../view/download.ts";
import { FigureFrame } from "./figure_frame.tsx";
import * as svg from "./marks.tsx";
import { type ReportContext, useReport } from "./report_context.ts";
import { Quiet } from "./sentences.tsx";
import { headsFigure, nameOf, VariableList, valueRow } from "./variables.tsx";

const LEFT = 56;
const TOP = 40;
const BOTTOM = 40;
const NO_ROLE = "not measured";

type Point = Readonly<{ id: HeadId; role: string; x: number; y: number }>;

/** Panel of one model, and its scales from values to pixels. */
interface Area {
  readonly points: readonly Point[];
  readonly width: number;
  readonly height: number;
  px(value: number): number;
  py(value: number): number;
}

export function FinderFigureView({ figure }: { figure: FinderFigure }) {
  const context = useReport();
  const variables = headsFigure(context.report)?.variables ?? [];
  const variable = (id: string) =>
    variables.find((candidate) => candidate.id === id) ?? variables[0];
  const [first] = figure.presets;
  const [axes, setAxes] = useState({ x: variable(first.x), y: variable(first.y) });
  const [brushed, setBrushed] = useState<readonly Point[] | null>(null);
  const choose = (changes: Partial<typeof axes>) => {
    setAxes({ ...axes, ...changes });
    setBrushed(null);
  };
  const preset = figure.presets.findIndex(({ x, y }) => x === axes.x.id && y === axes.y.id);
  const controls = (
    <div>
      {first.title && (
        <Segments
          kind="segments"
          label="Pairs of measures"
          value={preset}
          options={figure.presets.map(({ title }, i) => [i, title])}
          choose={(i) =>
            choose({ x: variable(figure.presets[i].x), y: variable(figure.presets[i].y) })
          }
        />
      )}
      <div class="chooser">
        <VariableList
          label="Across"
          variables={variables}
          value={axes.x}
          choose={(x) => x && choose({ x })}
        />
        <Quiet text="⇄" title="Exchange the axes" click={() => choose({ x: axes.y, y: axes.x })} />
        <VariableList
          label="Up"
          variables={variables}
          value={axes.y}
          choose={(y) => y && choose({ y })}
        />
      </div>
    </div>
  );
  const notes = figure.presets[preset]?.notes ?? [];
  const draw = (width: number) => (
    <div>
      {drawFinder({ figure, context, axes, notes, brush: setBrushed }, width)}
      <div class="brushed" aria-live="polite">
        {brushed && <Brushed points={brushed} share={axes.y.share} />}
      </div>
    </div>
  );
  const csv = () => finderRows(figure, context, axes);
  return <FigureFrame figure={figure} controls={controls} csv={csv} draw={draw} />;
}

type Axes = Readonly<{ x: VariableEntry; y: VariableEntry }>;

function pointsOf(
  figure: FinderFigure,
  { report }: ReportContext,
  axes: Axes,
  subject: number,
): Point[] {
  const [x, y] = [axes.x.values[subject], axes.y.values[subject]];
  const roles = figure.panels[subject]?.roles;
  const { layers } = report.subjects[subject];
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

interface FinderInput {
  readonly figure: FinderFigure;
  readonly context: ReportContext;
  readonly axes: Axes;
  readonly notes: readonly string[];
  brush(points: readonly Point[] | null): void;
}

function drawFinder({ figure, context, axes, notes, brush }: FinderInput, width: number) {
  const { subjects } = context.report;
  const panels = subjects
    .map((_, subject) => ({ subject, points: pointsOf(figure, context, axes, subject) }))
    .filter(({ points }) => points.length > 0);
  const points = panels.flatMap((panel) => panel.points);
  const names = rolesByCount(points.map(({ role }) => role)).filter((name) => name !== NO_ROLE);
  const legend = svg.roleLegend(names, width);
  const start = legend.height + 14;
  const size = Math.min(svg.columnsFor(panels.length, width, 300, 24).size, 620);
  const height = Math.min(size * 0.72, 360);
  const inner = size - LEFT - 10;
  const sizes = panels.map(() => ({ width: size, height: TOP + height + BOTTOM }));
  const flowed = svg.flow(sizes, width, 24);
  const [across, up] = [domain(points.map(({ x }) => x)), domain(points.map(({ y }) => y))];
  const px = (value: number) => LEFT + ((value - across[0]) / (across[1] - across[0])) * inner;
  const py = (value: number) => TOP + height - ((value - up[0]) / (up[1] - up[0])) * height;
  const spots = new svg.Spots(context);
  const drawDot = ({ id, role, x, y }: Point, panel: number) => {
    const [subject, layer, head] = id;
    const { layers } = subjects[subject];
    const { class: kind, ...style } =
      role === NO_ROLE ? { class: "dot", fill: layerShade(layer, layers) } : dotStyle(role, names);
    const row = layers.indexOf(layer);
    const rows: Tip["rows"][number][] = [axes.x, axes.y].flatMap((variable) => [
      ...valueRow(variable, subject, row, head),
    ]);
    if (role !== NO_ROLE) rows.push(["role", role]);
    const spot = { heading: `L${layer} H${head}`, rows, panel, x: px(x), y: py(y), head: id };
    return (
      <circle
        key={id.join()}
        {...svg.round({ cx: px(x), cy: py(y) })}
        r={4.2}
        {...style}
        {...spots.add(String(kind), spot)}
      />
    );
  };
  return (
    <svg.Canvas width={width} height={start + flowed.height} label={figure.title} spots={spots}>
      {legend.element}
      {panels.map(({ subject, points: dots }, panel) => (
        <g
          key={subject}
          transform={svg.shift(flowed.places[panel].x, start + flowed.places[panel].y)}
        >
          <svg.Heading x={LEFT} y={12} text={subjects[subject].title} />
          <svg.Label x={LEFT} y={28} text={notes[subject] ?? ""} />
          {ticks(up[0], up[1], 5).map((value) => (
            <g key={value}>
              <svg.Line
                from={[LEFT, py(value)]}
                to={[LEFT + inner, py(value)]}
                stroke={value === 0 && up[0] < 0 ? "var(--soft)" : "var(--line)"}
              />
              <svg.Tick
                x={LEFT - 6}
                y={py(value) + 3.5}
                text={axisNumber(value, axes.y.share)}
                anchor="end"
              />
            </g>
          ))}
          {ticks(across[0], across[1], 6).map((value) => (
            <svg.Tick
              key={value}
              x={px(value)}
              y={TOP + height + 16}
              text={axisNumber(value, axes.x.share)}
            />
          ))}
          <svg.Label
            x={LEFT + inner / 2}
            y={TOP + height + 33}
            text={axisTitle({ ...axes.x, title: nameOf(axes.x) })}
            anchor="middle"
          />
          <svg.Label
            x={0}
            y={0}
            text={axisTitle({ ...axes.y, title: nameOf(axes.y) })}
            anchor="middle"
            turn={`${svg.shift(11, TOP + height / 2)} rotate(-90)`}
          />
          <Brush area={{ points: dots, px, py, width: inner, height }} brush={brush} />
          {dots.map((point) => drawDot(point, panel))}
        </g>
      ))}
    </svg.Canvas>
  );
}

/** Draw a rectangle with the pointer, and pass on the heads in it. */
function Brush({ area, brush }: { area: Area; brush: FinderInput["brush"] }) {
  const [box, setBox] = useState<Box | null>(null);
  const start = useRef<DOMPoint | null>(null);
  const place = (event: PointerEvent) => {
    const ground = event.currentTarget as SVGRectElement;
    const matrix = (ground.getScreenCTM() ?? new DOMMatrix()).inverse();
    return new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix);
  };
  const isInside = ({ x, y }: Point, { x: left, y: top, width, height }: Box) => {
    const [right, down] = [area.px(x) - left, area.py(y) - top];
    return right >= 0 && right <= width && down >= 0 && down <= height;
  };
  return (
    <>
      <rect
        {...svg.round({ x: LEFT, y: TOP, width: area.width, height: area.height })}
        fill="transparent"
        class="ground"
        onPointerDown={(event) => {
          if (event.pointerType === "touch") return; // A finger scrolls the page.
          start.current = place(event);
          event.currentTarget.setPointerCapture(event.pointerId);
          event.preventDefault();
        }}
        onPointerMove={(event) => {
          const from = start.current;
          if (!from) return;
          const to = place(event);
          const drawn = {
            x: Math.min(from.x, to.x),
            y: Math.min(from.y, to.y),
            width: Math.abs(to.x - from.x),
            height: Math.abs(to.y - from.y),
          };
          setBox(drawn);
          brush(area.points.filter((point) => isInside(point, drawn)).sort((a, b) => b.y - a.y));
        }}
        onPointerUp={(event) => {
          const [from, to] = [start.current, place(event)];
          start.current = null;
          if (!from || Math.hypot(to.x - from.x, to.y - from.y) >= 4) return;
          setBox(null);
          brush(null);
        }}
      />
      {box && (
        <rect {...svg.round({ ...box })} class="brush" fill="var(--ink)" fill-opacity={0.08} />
      )}
    </>
  );
}

function Brushed({ points, share }: { points: readonly Point[]; share: boolean }) {
  const context = useReport();
  return (
    <>
      <strong>{points.length === 1 ? "One head" : `${points.length} heads`}. </strong>
      {points.map(({ id, role, y }) => {
        const name = `L${id[1]} H${id[2]}`;
        const text = `${name} ${formatValue(y, share)}${role === NO_ROLE ? "" : ` · ${role}`}`;
        const open = () => context.openCard(id);
        return <Quiet key={id.join()} text={text} title={`The card of ${name}`} click={open} />;
      })}
    </>
  );
}

/** Range from 0, or from below it, with room above the highest value. */
function domain(values: readonly number[]): readonly [number, number] {
  const low = Math.min(0, ...values);
  const high = Math.max(0, ...values);
  const room = 0.04 * (high - low) || 1;
  return [low < 0 ? low - room : 0, high + room];
}

function finderRows(figure: FinderFigure, context: ReportContext, axes: Axes): Row[] {
  const rows: Row[] = [["model", "layer", "head", "role", nameOf(axes.x), nameOf(axes.y)]];
  context.report.subjects.forEach(({ title }, subject) => {
    for (const { id, role, x, y } of pointsOf(figure, context, axes, subject)) {
      rows.push([title, id[1], id[2], role, x, y]);
    }
  });
  return rows;
}
