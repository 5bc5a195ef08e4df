// The head view as lines: token columns as elements, lines and cells on two canvases.

import { printed } from "../data/axis.ts";
import { formatWeight } from "../data/number.ts";
import { type Columns, columnsOf, rowAt, rowY } from "../layout/columns.ts";
import { type Focus, focusOf } from "../layout/focus.ts";
import { allLinks, cellMarks, labelMarks, lineMarks, sums } from "../layout/head.ts";
import type { Links } from "../layout/links.ts";
import type { Mark, Scene } from "../layout/scene.ts";
import { paint, prepare } from "../paint/canvas.ts";
import { cssOf } from "../paint/color.ts";
import { make } from "./element.ts";
import type { Panel } from "./panel.ts";
import type { Scope } from "./scope.ts";
import { TokenColumn } from "./token_column.ts";

/** Lines drawn at most; weaker ones are left out, and the caption says so. */
const BUDGET = 9000;

export class HeadLines {
  private readonly base = make("canvas", { attributes: { "aria-hidden": "true" } });
  private readonly overlay = make("canvas", { attributes: { "aria-hidden": "true" } });
  private readonly film = make("div", { class: "film" }, this.base, this.overlay);
  private readonly stage = make("div", { class: "stage" }, this.film);
  readonly element = make("div", { class: "scroller", attributes: { tabindex: "-1" } }, this.stage);
  private readonly queries: TokenColumn;
  private readonly keys: TokenColumn;
  private columns: Columns | null = null;
  private links: Links[] = [];
  private marks: Mark[] = [];

  constructor(
    private readonly scope: Scope,
    private readonly panel: Panel,
  ) {
    this.queries = new TokenColumn(scope, panel, "query");
    this.keys = new TokenColumn(scope, panel, "key");
    this.stage.append(this.queries.element, this.keys.element);
    this.element.addEventListener("scroll", () => this.draw());
    this.stage.addEventListener("pointermove", (event) => this.point(event));
    this.stage.addEventListener("pointerleave", () => {
      scope.tooltip.hide();
      scope.store.point({});
    });
  }

  /** Lay out and draw everything anew. */
  render(): void {
    const { queries, keys, series } = this.panel;
    const { clientWidth: width, clientHeight: height } = this.element;
    if (width === 0 || height === 0) return;
    this.columns = columnsOf({
      width,
      height,
      rows: queries.length,
      columns: keys.length,
      rowEms: this.queries.measure(queries),
      columnEms: this.keys.measure(keys),
      series: series.length,
    });
    this.stage.style.height = `${Math.max(this.columns.height, 0)}px`;
    this.queries.render(queries, this.columns);
    this.keys.render(keys, this.columns);
    this.relink();
    this.draw();
  }

  /** What the caption should say about lines that are left out. */
  get floor(): number {
    return Math.max(0, ...this.links.map((links) => links.floor));
  }

  /** The focus changed: only the overlay is drawn. */
  renderFocus(): void {
    this.drawFocus();
    this.queries.mark(this.focus.rows);
    this.keys.mark(this.focus.columns);
  }

  scene(): Scene {
    const { queries, keys, series } = this.panel;
    const columns = this.columns!;
    const focus = this.focus;
    const lines = isFree(focus) ? this.marks : this.focusLines(columns, focus);
    return {
      width: columns.width,
      height: columns.height,
      background: this.scope.theme.tone.panel,
      marks: [
        ...lines,
        ...(["key", "query"] as const).flatMap((side) =>
          cellMarks(series, focus, side, columns, this.scope.theme, this.panel.precision),
        ),
        ...labelMarks(queries, keys, focus, columns, this.scope.theme),
      ],
    };
  }

  /** Bring a token into sight. */
  reveal(row: number): void {
    if (!this.columns) return;
    const y = rowY(this.columns, row);
    const { scrollTop, clientHeight } = this.element;
    if (y < scrollTop + 20 || y > scrollTop + clientHeight - 20) {
      this.element.scrollTop = y - clientHeight / 2;
    }
  }

  private get focus(): Focus {
    const { queries, keys } = this.panel;
    return focusOf(queries, keys, this.scope.store.selection, this.scope.store.hover);
  }

  private relink(): void {
    const { threshold, top } = this.scope.store.selection;
    const filter = { threshold, top, rows: null, columns: null, budget: BUDGET };
    this.links = allLinks(this.panel.series, filter);
    this.marks = lineMarks(this.panel.series, this.links, this.columns!, this.scope.theme);
  }

  private focusLines(columns: Columns, focus: Focus): Mark[] {
    const { threshold, top } = this.scope.store.selection;
    const links = allLinks(this.panel.series, { threshold, top, ...focus, budget: BUDGET });
    return lineMarks(this.panel.series, links, columns, this.scope.theme);
  }

  private draw(): void {
    if (!this.columns) return;
    const { scrollTop, clientHeight: height } = this.element;
    const context = prepare(this.base, this.columns.width, height);
    context.translate(0, -scrollTop);
    paint(context, { marks: this.marks }, { top: scrollTop, bottom: scrollTop + height });
    this.renderFocus();
  }

  private drawFocus(): void {
    const columns = this.columns;
    if (!columns) return;
    const focus = this.focus;
    this.base.classList.toggle("dimmed", !isFree(focus));
    const { scrollTop, clientHeight: height } = this.element;
    const context = prepare(this.overlay, columns.width, height);
    if (isFree(focus)) return;
    context.translate(0, -scrollTop);
    const { series, precision } = this.panel;
    const { theme } = this.scope;
    const marks = this.focusLines(columns, focus);
    for (const side of ["key", "query"] as const) {
      marks.push(...cellMarks(series, focus, side, columns, theme, precision));
    }
    paint(context, { marks }, { top: scrollTop, bottom: scrollTop + height });
  }

  private point(event: PointerEvent): void {
    const columns = this.columns;
    if (!columns) return;
    const { queries, keys } = this.panel;
    const box = this.stage.getBoundingClientRect();
    const x = event.clientX - box.left;
    const side =
      x < columns.lines.left + 24 ? "query" : x > columns.lines.right - 24 ? "key" : null;
    const entries = side === "query" ? queries : keys;
    const row = side ? rowAt(columns, event.clientY - box.top, entries.length) : -1;
    if (!side || row < 0) {
      this.scope.store.point({});
      this.scope.tooltip.hide();
      return;
    }
    this.scope.store.point({ [side]: entries[row].positions[0] });
    this.explain(event, side, row);
  }

  private explain(event: PointerEvent, side: "query" | "key", row: number): void {
    const { queries, keys, series } = this.panel;
    const [own, others] = side === "query" ? [queries, keys] : [keys, queries];
    const focus: Focus =
      side === "query"
        ? { rows: new Set([row]), columns: null }
        : { rows: null, columns: new Set([row]) };
    const found = series.flatMap((one) => {
      const totals = sums(one.matrix, focus, side === "query" ? "key" : "query")!;
      const exact = side === "query" ? this.panel.exactRow(one, row) : null;
      return Array.from(totals, (weight, other) => ({
        one,
        other,
        weight: exact?.[other] ?? weight,
        exact,
      }));
    });
    const known = found.filter((item) => Math.abs(item.weight) >= 0.0005);
    known.sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight));
    const rows = known.slice(0, 6).map(({ one, other, weight, exact }) => ({
      label: `${side === "query" ? "→" : "←"} ${printed(others[other].label)}`,
      value: formatWeight(weight, exact ? "exact" : this.panel.precision),
      ...(series.length > 1 ? { color: cssOf(one.color) } : {}),
    }));
    const missing = found.filter((item) => Number.isNaN(item.weight)).length;
    if (missing > 0) rows.push({ label: "missing", value: String(missing) });
    const heading = `${printed(own[row].label)}  ·  ${side} ${own[row].positions.join("–")}`;
    this.scope.tooltip.show(event, heading, rows, side === "query" ? "left" : "right");
  }
}

function isFree(focus: Focus): boolean {
  return focus.rows === null && focus.columns === null;
}
