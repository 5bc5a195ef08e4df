// Layer × head maps: roles, or one variable at a time, all models on one scale.

import { useState } from "preact/hooks";
import type { HeadsFigure, HeadValues, VariableEntry } from "../../generated/report.ts";
import { axisNumber, axisTitle, everyNth } from "../data/format.ts";
import { ROLES, roleLook, shade } from "../paint/roles.ts";
import type { Tip } from "../view/controls.tsx";
import type { Row } from "../view/download.ts";
import { FigureFrame } from "./figure_frame.tsx";
import * as svg from "./marks.tsx";
import { type ReportContext, useReport } from "./report_context.ts";
import { nameOf, VariableList, valueRow } from "./variables.tsx";

const LEFT = 26;
const TOP = 34;

/** Strength of sink and broad roles in percent: dimmed, as on a page. */
const DIMMED: Partial<Record<string, number>> = {
  first_token: 36,
  special_token: 36,
  punctuation: 36,
  broad: 46,
};
/** Number of variables in a tooltip where cells show roles. */
const TIP_VARIABLES = 3;
const ROLE_NOTE = "Named where at least half of its attention over the corpus goes one way.";

type Range = Readonly<{ low: number; high: number }>;

export function HeadsFigureView({ figure }: { figure: HeadsFigure }) {
  const context = useReport();
  const hasRoles = figure.roles.some((roles) => roles !== null);
  const [chosen, setChosen] = useState<VariableEntry | null>(hasRoles ? null : figure.variables[0]);
  const variable = chosen ?? figure.variables[0];
  const controls = (
    <div class="chooser">
      <VariableList
        label="Show"
        variables={figure.variables}
        value={chosen}
        first={hasRoles ? "What each head does" : undefined}
        choose={setChosen}
      />
    </div>
  );
  return (
    <FigureFrame
      figure={figure}
      controls={controls}
      notes={[{ text: chosen ? chosen.meaning : ROLE_NOTE, equation: chosen?.name }]}
      paper={chosen?.paper ?? ""}
      csv={() => headRows(figure, context, variable)}
      draw={(width) => drawHeads({ figure, context, variable, showsRoles: !chosen }, width)}
    />
  );
}

interface HeadsInput {
  readonly figure: HeadsFigure;
  readonly context: ReportContext;
  readonly variable: VariableEntry;
  readonly showsRoles: boolean;
}

function drawHeads(input: HeadsInput, width: number) {
  const { figure, context, variable, showsRoles } = input;
  const present = variable.values.flatMap((values, subject) =>
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
  const flowed = svg.flow(sizes, width, 28);
  const range = rangeOf(variable);
  const below = flowed.height + 14;
  const legend = showsRoles ? roleCounts(figure, below, width) : valueScale(variable, range, below);
  const spots = new svg.Spots(context);
  return (
    <svg.Canvas width={width} height={below + legend.height} label={figure.title} spots={spots}>
      {present.map(({ values, subject }, i) => (
        <g key={subject} transform={svg.shift(flowed.places[i].x, flowed.places[i].y)}>
          <svg.Heading x={LEFT} y={12} text={context.titleOf(subject)} />
          {drawCells(input, values, subject, sizes[i], range, spots, i)}
        </g>
      ))}
      {legend.element}
    </svg.Canvas>
  );
}

function drawCells(
  { figure, context, variable, showsRoles }: HeadsInput,
  { value }: HeadValues,
  subject: number,
  size: { cell: number; row: number },
  range: Range,
  spots: svg.Spots,
  panel: number,
) {
  const { layers } = context.report.subjects[subject];
  const columns = value[0]?.length ?? 0;
  const gap = size.cell > 14 ? 1.5 : 0.75;
  const stride = everyNth(columns, (columns * size.cell) / 18);
  const step = everyNth(value.length, (value.length * size.row) / 13);
  const middle = (head: number) => LEFT + (head + 0.5) * size.cell;
  const inTip = showsRoles ? figure.variables.slice(0, TIP_VARIABLES) : [variable];
  const drawCell = (number: number | null, head: number, i: number) => {
    const role = roleLook(figure.roles[subject]?.[i]?.[head] || null);
    const [x, y, layer] = [LEFT + head * size.cell, TOP + i * size.row, layers[i] ?? i];
    const rows: Tip["rows"] = inTip.flatMap((shown) => valueRow(shown, subject, i, head));
    const spot = spots.add("cell", {
      heading: `L${layer} H${head}`,
      rows: showsRoles ? [[role.name, ""], ...rows] : rows,
      ...{ panel, x, y, head: [subject, layer, head] },
    });
    const box = { x: x + gap / 2, y: y + gap / 2, width: size.cell - gap, height: size.row - gap };
    const fill = number === null ? "var(--missing)" : valueFill(number, range);
    const symbol = {
      fill: DIMMED[role.id] ? "soft" : `on-${role.id}`,
      text: showsRoles && size.row >= 12 ? role.symbol : "",
    };
    return (
      <g key={head}>
        <rect
          {...svg.round(box)}
          rx={1.5}
          {...(showsRoles ? roleFill(role.id) : { fill })}
          {...spot}
        />
        {symbol.text && (
          <g pointer-events="none">
            <svg.Label
              x={middle(head)}
              y={y + size.row / 2}
              {...symbol}
              anchor="middle"
              isCentral
            />
          </g>
        )}
      </g>
    );
  };
  return (
    <>
      {Array.from({ length: columns }, (_, head) =>
        head % stride ? null : (
          <svg.Tick key={head} x={middle(head)} y={TOP - 6} text={String(head)} />
        ),
      )}
      {value.map((row, i) => {
        const [y, layer] = [TOP + (i + 0.5) * size.row, String(layers[i] ?? i)];
        return (
          <g key={layer}>
            {i % step === 0 && <svg.Tick x={LEFT - 6} y={y} text={layer} anchor="end" isCentral />}
            {row.map((number, head) => drawCell(number, head, i))}
          </g>
        );
      })}
    </>
  );
}

function roleFill(id: string): Record<string, string> {
  if (id === "unnamed") return { fill: "var(--panel)", stroke: "var(--strong)" };
  return { fill: `color-mix(in oklab, var(--role-${id}) ${DIMMED[id] ?? 100}%, var(--panel))` };
}

/** Color of a value; those of both signs are symmetric about 0. */
function valueFill(number: number, { low, high }: Range): string {
  if (low >= 0) return shade(number / high);
  const share = Math.round((100 * Math.abs(number)) / Math.max(-low, high));
  const color = number < 0 ? "--negative" : "--positive";
  return `color-mix(in oklab, var(${color}) ${share}%, var(--panel))`;
}

/** Legend of the roles that occur: color, symbol, name and number of heads. */
function roleCounts(figure: HeadsFigure, y: number, width: number) {
  const counts = new Map<string, number>();
  for (const role of figure.roles.flatMap((table) => table?.flat() ?? [])) {
    const { id } = roleLook(role || null);
    counts.set(id, (counts.get(id) ?? 0) + 1);
  }
  const roles = ROLES.filter(({ id }) => counts.has(id));
  const labels = roles.map(({ id, name }) => `${name} ${counts.get(id)}`);
  const { places, height } = svg.flowNames(labels, 36, width - LEFT, 20);
  const element = (
    <g transform={svg.shift(LEFT, y)}>
      {places.map(({ name, x, y: line }, i) => {
        const { id, symbol } = roles[i];
        const hollow = { fill: "var(--panel)", stroke: "var(--soft)" };
        const style = id === "unnamed" ? hollow : { fill: `var(--role-${id})`, stroke: "none" };
        const place = { x: x + 7.5, y: line + 7.5, text: symbol, fill: `on-${id}` };
        return (
          <g key={id}>
            <rect {...svg.round({ x, y: line })} width={15} height={15} rx={4} {...style} />
            <svg.Label {...place} anchor="middle" isCentral />
            <svg.Label x={x + 20} y={line + 11.5} text={name} fill="ink" />
          </g>
        );
      })}
    </g>
  );
  return { element, height: height + 18 };
}

function rangeOf(variable: VariableEntry): Range {
  const numbers = variable.values.flatMap((values) => values?.value.flat() ?? []);
  const low = Math.min(0, ...numbers.map((number) => number ?? 0));
  const high = Math.max(0, ...numbers.map((number) => number ?? 0));
  return low === 0 && high === 0 ? { low: 0, high: 1 } : { low, high };
}

/** Color scale of the range; for values of both signs symmetric about 0. */
function valueScale(variable: VariableEntry, range: Range, y: number) {
  const to = Math.max(-range.low, range.high);
  const from = range.low < 0 ? -to : 0;
  const end = (value: number) => axisNumber(Number(value.toPrecision(3)), variable.share);
  const element = (
    <svg.ColorScale
      x={LEFT}
      y={y}
      fill={(share) => valueFill(from + share * (to - from), range)}
      ends={[end(from), end(to)]}
      title={axisTitle({ ...variable, title: nameOf(variable) })}
    />
  );
  return { element, height: 30 };
}

function headRows(figure: HeadsFigure, context: ReportContext, variable: VariableEntry): Row[] {
  const rows: Row[] = [["model", "layer", "head", "role", variable.id, "low", "high"]];
  variable.values.forEach((values, subject) => {
    const { title, layers } = context.report.subjects[subject];
    values?.value.forEach((row, i) => {
      row.forEach((number, head) => {
        const role = figure.roles[subject]?.[i]?.[head] ?? "";
        const bounds = [values.low?.[i][head] ?? null, values.high?.[i][head] ?? null];
        rows.push([title, layers[i], head, role, number, ...bounds]);
      });
    });
  });
  return rows;
}
