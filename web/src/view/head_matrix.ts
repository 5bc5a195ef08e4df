// The head view as a matrix, on one canvas that follows the scroll position.

import { printed } from "../data/axis.ts";
import { combine, type Matrix } from "../data/lens.ts";
import { formatWeight } from "../data/number.ts";
import { focusOf } from "../layout/focus.ts";
import {
  cellAt,
  heatMark,
  type MatrixLayout,
  matrixLabels,
  matrixLayout,
} from "../layout/matrix.ts";
import { emptyScene, type ImageMark, type Mark, type Scene } from "../layout/scene.ts";
import { paint, prepare, widestEms } from "../paint/canvas.ts";
import { cssOf } from "../paint/color.ts";
import { make } from "./element.ts";
import type { Panel } from "./panel.ts";
import type { Scope } from "./scope.ts";

interface Cell {
  readonly row: number;
  readonly column: number;
}

const STEPS: Record<string, readonly [down: number, across: number]> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

export class HeadMatrix {
  private readonly canvas = make("canvas", { attributes: { role: "img" } });
  private readonly film = make("div", { class: "film" }, this.canvas);
  private readonly stage = make("div", { class: "stage" }, this.film);
  readonly element = make(
    "div",
    {
      class: "scroller both",
      attributes: {
        tabindex: "0",
        role: "group",
        "aria-label":
          "Attention matrix: arrows move through queries and keys, Enter pins the query",
      },
      on: {
        keydown: (event) => this.key(event as KeyboardEvent),
        blur: () => this.leave(),
      },
    },
    this.stage,
  );
  private layout: MatrixLayout | null = null;
  private matrix: Matrix | null = null;
  private heat: ImageMark | null = null;
  private labels: Mark[] = [];
  /** The cell that the arrow keys are at. */
  private cursor: Cell | null = null;

  constructor(
    private readonly scope: Scope,
    private readonly panel: Panel,
  ) {
    this.element.addEventListener("scroll", () => this.draw());
    this.stage.addEventListener("pointermove", (event) => this.point(event));
    this.stage.addEventListener("pointerleave", () => this.leave());
    this.stage.addEventListener("click", (event) => this.pin(this.cell(event)));
  }

  render(): void {
    const { queries, keys, series } = this.panel;
    const { clientWidth: width, clientHeight: height } = this.element;
    if (width === 0 || height === 0 || series.length === 0) return;
    const labels = [...queries, ...keys].map((entry) => printed(entry.label));
    this.layout = matrixLayout({ width, height }, queries.length, keys.length, widestEms(labels));
    this.matrix =
      series.length === 1
        ? series[0].matrix
        : combine(
            series.map((one) => one.matrix),
            "mean",
          );
    this.heat = heatMark(this.matrix, this.layout, this.scope.theme, series[0].signed);
    if (this.cursor && (this.cursor.row >= queries.length || this.cursor.column >= keys.length)) {
      this.cursor = null;
    }
    this.labels = matrixLabels(queries, keys, this.layout, this.scope.theme);
    this.stage.style.height = `${this.layout.height}px`;
    this.stage.style.width = `${this.layout.width}px`;
    const names = series.map((one) => one.label).join(", ");
    this.canvas.setAttribute(
      "aria-label",
      `Attention of ${names} as a matrix: ${queries.length} queries by ${keys.length} keys`,
    );
    this.draw();
  }

  renderFocus(): void {
    this.draw();
  }

  scene(): Scene {
    const { layout, heat } = this;
    if (!layout || !heat) return emptyScene(this.scope.theme.tone.panel);
    return {
      width: layout.width,
      height: layout.height,
      background: this.scope.theme.tone.panel,
      marks: [heat, ...this.labels, ...this.frames()],
    };
  }

  /** Bring a row into sight. */
  reveal(row: number): void {
    if (!this.layout) return;
    const y = this.layout.top + row * this.layout.cell;
    const { scrollTop, clientHeight } = this.element;
    if (y < scrollTop + 8 || y + this.layout.cell > scrollTop + clientHeight - 8) {
      this.element.scrollTop = y - clientHeight / 2;
    }
  }

  private draw(): void {
    const { layout, heat } = this;
    if (!layout || !heat) return;
    const { scrollTop, scrollLeft, clientWidth: width, clientHeight: height } = this.element;
    const context = prepare(this.canvas, width, height);
    context.translate(-scrollLeft, -scrollTop);
    const everything = { top: Number.NEGATIVE_INFINITY, bottom: Number.POSITIVE_INFINITY };
    paint(context, { marks: [heat, ...this.labels, ...this.frames()] }, everything);
    if (this.cursor) paint(context, { marks: [this.frame(this.cursor, 2)] }, everything);
  }

  /** Outlines of the rows and columns that are pinned or looked at. */
  private frames(): Mark[] {
    const { queries, keys } = this.panel;
    const { selection, hover } = this.scope.store;
    const { rows, columns } = focusOf(queries, keys, selection, hover);
    return [
      ...[...(rows ?? [])].map((row) => this.frame({ row, column: null })),
      ...[...(columns ?? [])].map((column) => this.frame({ row: null, column })),
    ];
  }

  /** The outline of a cell; of a whole row or column where the other is null. */
  private frame(
    { row, column }: { row: number | null; column: number | null },
    thickness = 1,
  ): Mark {
    const { left, top, cell } = this.layout!;
    const heat = this.heat!;
    const { tone } = this.scope.theme;
    return {
      kind: "frame",
      x: left + (column ?? 0) * cell,
      y: top + (row ?? 0) * cell,
      width: column === null ? heat.width : cell,
      height: row === null ? heat.height : cell,
      color: row !== null && column !== null ? tone.ink : tone.accent,
      thickness,
    };
  }

  private cell(event: MouseEvent): Cell | null {
    if (!this.layout || !this.matrix) return null;
    const box = this.stage.getBoundingClientRect();
    const { rows, columns } = this.matrix;
    return cellAt(this.layout, event.clientX - box.left, event.clientY - box.top, rows, columns);
  }

  private point(event: PointerEvent): void {
    const cell = this.cell(event);
    if (!cell) {
      this.leave();
      return;
    }
    this.cursor = null;
    this.explain(cell, event);
  }

  private leave(): void {
    this.cursor = null;
    this.scope.tooltip.hide();
    this.scope.store.point({});
    this.draw();
  }

  private explain(cell: Cell, at: { clientX: number; clientY: number }): void {
    const { queries, keys, series, precision } = this.panel;
    const [query, key] = [queries[cell.row], keys[cell.column]];
    this.scope.store.point({ query: query.positions[0], key: key.positions[0] });
    const rows = series.map((one) => {
      const exact = this.panel.exactRow(one, cell.row);
      const weight =
        exact?.[cell.column] ?? one.matrix.weights[cell.row * one.matrix.columns + cell.column];
      return {
        label: one.label,
        value: formatWeight(weight, exact ? "exact" : precision),
        color: cssOf(one.color),
      };
    });
    this.scope.tooltip.show(at, `${printed(query.label)} → ${printed(key.label)}`, rows);
  }

  private key(event: KeyboardEvent): void {
    const { layout, matrix } = this;
    if (!layout || !matrix || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") this.leave(); // and the explorer unpins
    if (event.key === "Enter" || event.key === " ") this.pin(this.cursor);
    else if (event.key in STEPS) this.step(STEPS[event.key]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private step([down, across]: readonly [number, number]): void {
    const { rows, columns } = this.matrix!;
    const { cell, left, top } = this.layout!;
    const within = (at: number, count: number) => Math.min(Math.max(at, 0), count - 1);
    this.cursor = {
      row: this.cursor ? within(this.cursor.row + down, rows) : 0,
      column: this.cursor ? within(this.cursor.column + across, columns) : 0,
    };
    const [x, y] = [left + this.cursor.column * cell, top + this.cursor.row * cell];
    this.reveal(this.cursor.row);
    const { scrollLeft, clientWidth } = this.element;
    if (x < scrollLeft || x + cell > scrollLeft + clientWidth) {
      this.element.scrollLeft = x - clientWidth / 2;
    }
    const box = this.stage.getBoundingClientRect();
    this.explain(this.cursor, { clientX: box.left + x + cell, clientY: box.top + y + cell });
    this.draw();
  }

  private pin(cell: Cell | null): void {
    if (!cell) return;
    const position = this.panel.queries[cell.row].positions[0];
    const { queries } = this.scope.store.selection;
    const isPinned = queries.includes(position);
    this.scope.store.update({
      queries: isPinned ? queries.filter((query) => query !== position) : [...queries, position],
    });
  }
}
