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
import type { ImageMark, Mark, Scene } from "../layout/scene.ts";
import { paint, prepare, widestEms } from "../paint/canvas.ts";
import { cssOf } from "../paint/color.ts";
import { make } from "./element.ts";
import type { Panel } from "./panel.ts";
import type { Scope } from "./scope.ts";

export class HeadMatrix {
  private readonly canvas = make("canvas", { attributes: { role: "img" } });
  private readonly film = make("div", { class: "film" }, this.canvas);
  private readonly stage = make("div", { class: "stage" }, this.film);
  readonly element = make(
    "div",
    { class: "scroller both", attributes: { tabindex: "-1" } },
    this.stage,
  );
  private layout: MatrixLayout | null = null;
  private matrix: Matrix | null = null;
  private heat: ImageMark | null = null;
  private labels: Mark[] = [];

  constructor(
    private readonly scope: Scope,
    private readonly panel: Panel,
  ) {
    this.element.addEventListener("scroll", () => this.draw());
    this.stage.addEventListener("pointermove", (event) => this.point(event));
    this.stage.addEventListener("pointerleave", () => {
      scope.tooltip.hide();
      scope.store.point({});
    });
    this.stage.addEventListener("click", (event) => this.pin(event));
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
    const layout = this.layout!;
    return {
      width: layout.width,
      height: layout.height,
      background: this.scope.theme.tone.panel,
      marks: [this.heat!, ...this.labels],
    };
  }

  reveal(row: number): void {
    if (this.layout) this.element.scrollTop = this.layout.top + row * this.layout.cell - 200;
  }

  private draw(): void {
    const { layout, heat } = this;
    if (!layout || !heat) return;
    const { scrollTop, scrollLeft, clientWidth: width, clientHeight: height } = this.element;
    const context = prepare(this.canvas, width, height);
    context.translate(-scrollLeft, -scrollTop);
    const everything = { top: Number.NEGATIVE_INFINITY, bottom: Number.POSITIVE_INFINITY };
    paint(context, { marks: [heat, ...this.labels] }, everything);
    const { queries, keys } = this.panel;
    const { selection, hover } = this.scope.store;
    const focus = focusOf(queries, keys, selection, hover);
    const { accent } = this.scope.theme.rgb;
    context.fillStyle = cssOf(accent, 0.12);
    context.strokeStyle = cssOf(accent, 0.9);
    for (const row of focus.rows ?? []) {
      context.strokeRect(
        layout.left - 0.5,
        layout.top + row * layout.cell - 0.5,
        heat.width + 1,
        layout.cell + 1,
      );
    }
    for (const column of focus.columns ?? []) {
      context.strokeRect(
        layout.left + column * layout.cell - 0.5,
        layout.top - 0.5,
        layout.cell + 1,
        heat.height + 1,
      );
    }
  }

  private cell(event: MouseEvent): { row: number; column: number } | null {
    if (!this.layout || !this.matrix) return null;
    const box = this.stage.getBoundingClientRect();
    const { rows, columns } = this.matrix;
    return cellAt(this.layout, event.clientX - box.left, event.clientY - box.top, rows, columns);
  }

  private point(event: PointerEvent): void {
    const cell = this.cell(event);
    if (!cell || !this.matrix) {
      this.scope.tooltip.hide();
      this.scope.store.point({});
      return;
    }
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
    this.scope.tooltip.show(event, `${printed(query.label)} → ${printed(key.label)}`, rows);
  }

  private pin(event: MouseEvent): void {
    const cell = this.cell(event);
    if (!cell) return;
    const position = this.panel.queries[cell.row].positions[0];
    const { queries } = this.scope.store.selection;
    const isPinned = queries.includes(position);
    this.scope.store.update({
      queries: isPinned ? queries.filter((query) => query !== position) : [...queries, position],
    });
  }
}
