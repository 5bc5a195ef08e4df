// Tables: numbers with intervals, bars beside their baselines, links to heads.

import type { Cell, TableColumn, TableFigure } from "../../generated/report.ts";
import { formatSmall, formatValue, isInterval, withInterval } from "../data/format.ts";
import { classes } from "../view/controls.tsx";
import type { Row } from "../view/download.ts";
import { FigureFrame } from "./figure_frame.tsx";
import { useReport } from "./report_context.ts";
import { HeadLink } from "./sentences.tsx";

/** Rows up to which a table keeps to one page on paper. */
const ONE_PAGE = 16;

export function TableFigureView({ figure }: { figure: TableFigure }) {
  const { columns, rows, title } = figure;
  const hasOneModel = useReport().report.subjects.length === 1;
  const isIdle = (i: number) =>
    rows.every((row) => row[i] === null) || (columns[i].label === "Model" && hasOneModel);
  const kept = [...columns.keys()].filter((i) => !isIdle(i));
  const draw = () => (
    <div
      class={rows.length > ONE_PAGE ? "scroll long" : "scroll"}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: keys scroll it
      tabIndex={0}
      role="region"
      aria-label={title}
    >
      <table>
        <thead>
          <tr>
            {kept.map((i) => (
              <th key={i} scope="col" class={columns[i].kind}>
                {columns[i].label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, r) => (
            <tr key={r}>
              {kept.map((i) => {
                // A repeated model name is dimmed, not left out: rows may be read alone.
                const isRepeated = columns[i].label === "Model" && rows[r - 1]?.[i] === row[i];
                return (
                  <td key={i} class={classes(columns[i].kind, isRepeated && "repeated")}>
                    <Content row={row} index={i} column={columns[i]} />
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
  return <FigureFrame figure={figure} csv={() => tableRows(figure)} draw={draw} />;
}

type ContentProps = Readonly<{ row: readonly Cell[]; index: number; column: TableColumn }>;

function Content({ row, index, column }: ContentProps) {
  const value = row[index];
  if (isHead(value)) return <HeadLink id={value.head} />;
  if (typeof value === "string") return <>{value}</>;
  if (column.kind === "count") return <>{value === null ? "–" : String(value)}</>;
  if (column.kind === "bar") {
    const against = column.against === undefined ? null : numberOf(row[column.against]);
    const width = (share: number) => `${100 * Math.min(1, share)}%`;
    return (
      <>
        <span class="bar-track" aria-hidden="true">
          <i style={{ width: width(numberOf(value) ?? 0) }} />
          {against !== null && <b style={{ left: width(against) }} />}
        </span>
        <span>{cellText(value, true)}</span>
      </>
    );
  }
  const text = cellText(value, column.kind === "share");
  // Differences of shares are in percentage points.
  return <>{column.kind === "difference" ? text.replace("%", "points") : text}</>;
}

function cellText(value: Cell, share: boolean): string {
  if (isInterval(value)) {
    return withInterval(value.value, value.low, value.high, value.share ?? share);
  }
  if (typeof value !== "number") return "–";
  return share ? formatValue(value, true) : formatSmall(value);
}

function numberOf(value: Cell | undefined): number | null {
  return isInterval(value) ? value.value : typeof value === "number" ? value : null;
}

function isHead(value: Cell): value is Extract<Cell, { head: unknown }> {
  return typeof value === "object" && value !== null && "head" in value;
}

function tableRows({ columns, rows }: TableFigure): Row[] {
  const isWide = columns.map((_, i) => rows.some((row) => isInterval(row[i])));
  const header = columns.flatMap(({ label }, i) =>
    isWide[i] ? [label, `${label} low`, `${label} high`] : [label],
  );
  const body = rows.map((row) =>
    row.flatMap((value, i): Row => {
      if (isInterval(value)) return [value.value, value.low, value.high];
      const plain = isHead(value) ? `L${value.head[1]} H${value.head[2]}` : value;
      return isWide[i] ? [plain, null, null] : [plain];
    }),
  );
  return [header, ...body];
}
