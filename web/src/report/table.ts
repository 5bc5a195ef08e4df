// Tables: numbers with intervals, bars beside their baselines, heads as buttons.

import { isInterval, plainNumber, shown, withInterval } from "../data/format.ts";
import type { Row } from "../view/download.ts";
import { make } from "../view/element.ts";
import type { Cell, TableColumn, TableFigure } from "./data.ts";
import type { Drawing, Scope } from "./draw.ts";
import { headLink } from "./text.ts";

/** Rows up to which a table keeps to one page on paper. */
const ONE_PAGE = 16;

export class Table implements Drawing {
  constructor(
    private readonly figure: TableFigure,
    private readonly scope: Scope,
  ) {}

  render(): HTMLElement {
    const { columns, rows } = this.figure;
    const kept = columns.map((_, i) => i).filter((i) => !this.isIdle(i));
    const head = make(
      "tr",
      {},
      ...kept.map((i) =>
        make("th", {
          text: columns[i].label,
          class: columns[i].kind,
          attributes: { scope: "col" },
        }),
      ),
    );
    const body = rows.map((row, at) =>
      make(
        "tr",
        {},
        ...kept.map((i) => {
          const cell = this.cell(row, i, columns[i]);
          // A model's name again and again is set back, not left out: rows may be read alone.
          const isRepeated = columns[i].label === "Model" && rows[at - 1]?.[i] === row[i];
          if (isRepeated) cell.classList.add("repeated");
          return cell;
        }),
      ),
    );
    return make(
      "div",
      {
        class: rows.length > ONE_PAGE ? "scroll long" : "scroll",
        attributes: { tabindex: "0", role: "region", "aria-label": this.figure.title },
      },
      make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)),
    );
  }

  /** One model needs no column of models; nor does a column without content. */
  private isIdle(index: number): boolean {
    const { columns, rows } = this.figure;
    if (rows.every((row) => row[index] === null)) return true;
    return columns[index].label === "Model" && this.scope.report.subjects.length === 1;
  }

  private cell(row: Cell[], index: number, column: TableColumn): HTMLElement {
    const value = row[index];
    const cell = make("td", { class: column.kind });
    if (typeof value === "object" && value !== null && "head" in value) {
      cell.append(headLink(value.head, this.scope));
    } else if (typeof value === "string") cell.textContent = value;
    else if (column.kind === "count") cell.textContent = value === null ? "–" : String(value);
    else if (column.kind === "bar") this.bar(cell, row, index, column);
    else {
      const text = this.number(value as Cell, column.kind === "share");
      // A difference of shares is in points, not in percent of anything.
      cell.textContent = column.kind === "difference" ? text.replace("%", "points") : text;
    }
    return cell;
  }

  private number(value: Cell, share: boolean): string {
    if (isInterval(value)) {
      return withInterval(value.value, value.low, value.high, value.share ?? share);
    }
    return typeof value === "number" ? (share ? shown(value, true) : plainNumber(value)) : "–";
  }

  private bar(cell: HTMLElement, row: Cell[], index: number, column: TableColumn): void {
    const of = (value: Cell | undefined) =>
      isInterval(value) ? value.value : typeof value === "number" ? value : null;
    const bar = make("span", { class: "bar-track", attributes: { "aria-hidden": "true" } });
    const fill = make("i");
    fill.style.width = `${100 * Math.min(1, of(row[index]) ?? 0)}%`;
    bar.append(fill);
    const against = column.against === undefined ? null : of(row[column.against]);
    if (against !== null) {
      const mark = make("b");
      mark.style.left = `${100 * Math.min(1, against)}%`;
      bar.append(mark);
    }
    cell.append(bar, make("span", { text: this.number(row[index], true) }));
  }

  csv(): Row[] {
    const header: string[] = [];
    for (const [i, { label }] of this.figure.columns.entries()) {
      header.push(label);
      if (this.figure.rows.some((row) => isInterval(row[i])))
        header.push(`${label} low`, `${label} high`);
    }
    const rows = this.figure.rows.map((row) =>
      this.figure.columns.flatMap((_, i): Row => {
        const value = row[i];
        const isWide = this.figure.rows.some((other) => isInterval(other[i]));
        if (isInterval(value)) return [value.value, value.low, value.high];
        const plain =
          typeof value === "object" && value !== null && "head" in value
            ? `L${value.head[1]} H${value.head[2]}`
            : (value as string | number | null);
        return isWide ? [plain, null, null] : [plain];
      }),
    );
    return [header, ...rows];
  }
}
