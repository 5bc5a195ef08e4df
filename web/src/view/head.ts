// The head pane: layer, heads and form on top; one panel, or two traces side by side, below.

import { layerIndex, type Selection } from "../state/selection.ts";
import { HeadChips } from "./chips.ts";
import { make, segments } from "./element.ts";
import { HeadLines } from "./head_lines.ts";
import { HeadMatrix } from "./head_matrix.ts";
import { MediaStrip } from "./media.ts";
import { Panel } from "./panel.ts";
import type { Captioned } from "./saving.ts";
import type { Scope } from "./scope.ts";

interface Shown {
  readonly panel: Panel;
  readonly view: HeadLines | HeadMatrix;
  readonly media: MediaStrip;
  readonly caption: HTMLElement;
  readonly form: Selection["form"];
}

export class HeadView {
  private readonly chips: HeadChips;
  private readonly form;
  private readonly body = make("div", { class: "panels" });
  readonly element: HTMLElement;
  private shown: Shown[] = [];

  constructor(private readonly scope: Scope) {
    const { store } = scope;
    this.chips = new HeadChips(scope);
    this.form = segments(
      "Form of the head view",
      [
        { value: "lines", label: "Lines", title: "Lines between queries and keys (M)" },
        { value: "matrix", label: "Matrix", title: "Queries down, keys across (M)" },
      ],
      (form) => store.update({ form: form as Selection["form"] }),
    );
    const head = make("div", { class: "pane-head" }, this.chips.element, this.form.element);
    this.element = make(
      "section",
      { class: "pane head", attributes: { "aria-label": "Head view" } },
      head,
      this.body,
    );
    store.onHover(() => {
      this.renderPins();
    });
    scope.exact.onArrival(() => {
      for (const { view } of this.shown) view.renderFocus();
    });
  }

  render(): void {
    const { selection } = this.scope.store;
    this.form.set(selection.form);
    this.chips.render();
    this.arrange(this.wanted(), selection.form);
    for (const { panel, view, media, caption } of this.shown) {
      panel.refresh();
      caption.textContent = "";
      media.render();
      view.render();
      caption.textContent = this.caption(panel, view);
    }
  }

  /** Only pins changed: the lines stay. */
  renderPins(): void {
    for (const { view, media } of this.shown) {
      view.renderFocus();
      media.renderFocus();
    }
  }

  /** What stands above it in a file with other views. */
  get title(): string {
    const { layer, heads, combine } = this.scope.store.selection;
    if (combine !== "each") return "Head view";
    return `Head view: L${layer} ${heads.map((head) => `H${head}`).join(" ")}`;
  }

  scenes(): Captioned[] {
    const hasTitles = this.scope.traces.length > 1;
    return this.shown.flatMap(({ panel, view, media, caption }) => {
      const words = [hasTitles ? panel.title : "", caption.textContent].filter(Boolean);
      const picture = media.scene();
      return [
        ...(picture ? [{ scene: picture, caption: media.words }] : []),
        { scene: view.scene(), caption: words.join("  ·  ") },
      ];
    });
  }

  selectAll(): void {
    this.chips.selectAll();
  }

  reveal(row: number): void {
    for (const { view } of this.shown) view.reveal(row);
  }

  private wanted(): (number | "difference")[] {
    const { scope } = this;
    const { compare } = scope.store.selection;
    if (scope.traces.length < 2) return [0];
    if (compare === "both") return [0, 1];
    if (compare === "difference") return scope.comparable ? ["difference"] : [0, 1];
    return [compare === "second" ? 1 : 0];
  }

  private arrange(wanted: (number | "difference")[], form: Selection["form"]): void {
    const same =
      wanted.length === this.shown.length &&
      this.shown.every((one, i) => one.panel.which === wanted[i] && one.form === form);
    if (same) return;
    this.shown = wanted.map((which) => {
      const panel = new Panel(this.scope, which);
      const view =
        form === "lines" ? new HeadLines(this.scope, panel) : new HeadMatrix(this.scope, panel);
      const media = new MediaStrip(this.scope, panel);
      return { panel, view, media, caption: make("p", { class: "caption" }), form };
    });
    this.body.replaceChildren(
      ...this.shown.map(({ panel, view, media, caption }) =>
        make(
          "div",
          { class: "panel" },
          this.scope.traces.length > 1
            ? make("h2", { text: panel.title, title: panel.title })
            : null,
          make("div", { class: "panel-body" }, media.element, view.element),
          caption,
        ),
      ),
    );
  }

  private caption(panel: Panel, view: HeadLines | HeadMatrix): string {
    const { selection } = this.scope.store;
    const { block } = panel.lens;
    const parts: string[] = [];
    if (panel.lens.rows.length === 0 || panel.lens.columns.length === 0) {
      return "Nothing is left by the filters. Press Escape twice to clear them.";
    }
    if (selection.combine !== "each") parts.push(panel.series.map((one) => one.label).join(" · "));
    else if (view instanceof HeadMatrix && panel.series.length > 1) {
      parts.push(`mean of ${panel.series.length} heads`);
    }
    if (view instanceof HeadLines && view.floor > 0.03 && view.floor > selection.threshold) {
      parts.push(`lines from ${view.floor.toFixed(2)} up`);
    }
    if (!selection.specials && block.keyTokens.special.some(Boolean)) {
      parts.push("without special tokens, renormalized");
    }
    if (selection.unit === "word") parts.push("words: attention to summed, from averaged");
    if (panel.which === "difference") parts.push("blue: more in the second; orange: less");
    if (hasMissing(panel, layerIndex(block, selection)))
      parts.push("some weights are missing (NaN)");
    return parts.join("  ·  ");
  }
}

function hasMissing(panel: Panel, index: number): boolean {
  const { planes } = panel.lens.block;
  const [, heads, queries, keys] = planes.shape;
  const start = planes.offset(index, 0);
  const codes = planes.coarse.subarray(start, start + heads * queries * keys);
  return (
    panel.series.length > 0 &&
    codes.includes(255) &&
    panel.series.some((one) => one.matrix.weights.some(Number.isNaN))
  );
}
