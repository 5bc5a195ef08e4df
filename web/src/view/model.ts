// The model pane: every head of every layer as a thumbnail.

import { formatNumber, STATISTICS } from "../data/number.ts";
import { type Overview, overviewOf, type Thumb, thumbAt } from "../layout/overview.ts";
import { pictures } from "../layout/picture.ts";
import { emptyScene, type ImageMark, type Mark } from "../layout/scene.ts";
import { LINES_LIMIT } from "../layout/thumbnail.ts";
import { paint, prepare } from "../paint/canvas.ts";
import { cssOf } from "../paint/color.ts";
import { make, select } from "./element.ts";
import { Legend } from "./legend.ts";
import type { Captioned } from "./saving.ts";
import type { Scope } from "./scope.ts";

export class ModelView {
  private readonly canvas = make("canvas", { attributes: { "aria-hidden": "true" } });
  private readonly overlay = make("canvas", { attributes: { "aria-hidden": "true" } });
  private readonly stage = make(
    "div",
    { class: "stage" },
    make("div", { class: "film" }, this.canvas, this.overlay),
  );
  private readonly scroller = make(
    "div",
    {
      class: "scroller both thumbs",
      attributes: {
        role: "group",
        tabindex: "0",
        "aria-label": "All heads: arrow keys move through layers and heads, Enter opens the head",
      },
    },
    this.stage,
  );
  private readonly controls = make("div", { class: "chooser" });
  private readonly legend: Legend;
  private readonly caption = make("p", { class: "caption" });
  readonly element: HTMLElement;
  private overview: Overview | null = null;
  private images: ImageMark[] = [];
  private color = select("Color by", [], () => {});
  private sort = select("Sort by", [], () => {});
  private offered = "";
  private drawnKey = "";

  constructor(private readonly scope: Scope) {
    this.legend = new Legend();
    const head = make("div", { class: "pane-head" }, this.controls, this.legend.element);
    this.element = make(
      "section",
      { class: "pane model", attributes: { "aria-label": "Model view" } },
      head,
      this.scroller,
      this.caption,
    );
    this.scroller.addEventListener("scroll", () => this.draw());
    this.stage.addEventListener("pointermove", (event) => this.point(event));
    this.stage.addEventListener("pointerleave", () => {
      scope.tooltip.hide();
      scope.store.point({});
    });
    this.stage.addEventListener("click", (event) => this.open(event));
    scope.store.onHover(() => this.drawOverlay());
  }

  /** Whether thumbnails show the second trace minus the first. */
  private get isDifference(): boolean {
    const { compare } = this.scope.store.selection;
    return this.scope.comparable && (compare === "difference" || compare === "both");
  }

  render(): void {
    const { scope } = this;
    const { selection } = scope.store;
    const lens = scope.lens(scope.leading);
    const { block } = lens;
    this.offer(Object.keys(block.statistics));
    this.color.set(selection.color);
    this.sort.set(selection.sort);
    const table = block.statistics[selection.color];
    this.legend.render(scope.theme, table ? selection.color : "", table ? range(table) : [0, 1]);
    const { clientWidth: width, clientHeight: height } = this.scroller;
    if (width === 0 || height === 0) return;
    const ranks = block.statistics[selection.sort];
    const overview = overviewOf({
      width,
      height,
      layers: block.layers,
      heads: block.heads,
      has: block.has,
      rank: ranks ? (layer, head) => ranks[layer][head] : null,
    });
    const { unit, specials, pair, color, sort, compare } = selection;
    const key = [
      block.name,
      unit,
      specials,
      pair,
      color,
      sort,
      compare,
      width,
      height,
      scope.theme.scheme,
    ].join("/");
    if (key !== this.drawnKey) {
      this.drawnKey = key;
      this.overview = overview;
      const [low, high] = table ? range(table) : [0, 1];
      const lenses = this.isDifference ? [scope.lens(0), scope.lens(1)] : [lens];
      this.images = pictures({
        lenses,
        specials,
        difference: this.isDifference,
        overview,
        theme: scope.theme,
        ratio: Math.min(globalThis.devicePixelRatio || 1, 2),
        ink: (thumb) => {
          const value = table?.[thumb.layerIndex][thumb.head];
          if (value === null || value === undefined) return null;
          return scope.theme.scale[Math.round(((value - low) / (high - low || 1)) * 255)];
        },
      });
      this.stage.style.width = `${overview.width}px`;
      this.stage.style.height = `${overview.height}px`;
      const long = Math.max(lens.rows.length, lens.columns.length);
      const parts = [];
      if (long > LINES_LIMIT)
        parts.push("heat: queries down, keys across, strongest weight of each cell");
      if (this.isDifference) parts.push("second − first: blue more, orange less");
      this.caption.textContent = parts.join("  ·  ");
    }
    this.draw();
    this.reveal();
  }

  readonly title = "Model view: all heads";

  scenes(): Captioned[] {
    const { overview } = this;
    const { theme, store } = this.scope;
    const background = theme.tone.panel;
    if (!overview) return [{ scene: emptyScene(background), caption: "" }];
    const labels = this.labels();
    const scale = this.legend.marks(theme, 14, overview.height + 4);
    const scene = {
      width: overview.width,
      height: overview.height + (scale.length ? 24 : 0),
      background,
      marks: [
        ...this.images,
        ...this.frames(theme.tone.line),
        ...labels.layers,
        ...labels.heads,
        ...this.chosenFrames(),
        ...scale,
      ],
    };
    const { sort } = store.selection;
    const sorted = sort ? `sorted by ${STATISTICS[sort]?.label ?? sort}` : "";
    return [{ scene, caption: [this.caption.textContent, sorted].filter(Boolean).join("  ·  ") }];
  }

  /** An outline for every thumbnail. */
  private frames(color: string): Mark[] {
    const { thumbs, size } = this.overview!;
    return thumbs.map(({ x, y }) => frame(x, y, size, color, 1));
  }

  /** Outlines of the chosen heads, in their colors. */
  private chosenFrames(): Mark[] {
    const { thumbs, size } = this.overview!;
    const { layer, heads } = this.scope.store.selection;
    const colors = this.scope.theme.heads(this.scope.lens(this.scope.leading).block.heads);
    return thumbs
      .filter((thumb) => thumb.layer === layer && heads.includes(thumb.head))
      .map(({ x, y, head }) => frame(x, y, size, cssOf(colors[head]), 2));
  }

  private offer(names: string[]): void {
    if (this.offered === names.join()) return;
    this.offered = names.join();
    const label = (name: string) => STATISTICS[name]?.label ?? name;
    const list = names.map((value) => ({ value, label: label(value) }));
    const { store } = this.scope;
    this.color = select("Color by", [{ value: "", label: "nothing" }, ...list], (color) =>
      store.update({ color }),
    );
    this.sort = select("Sort by", [{ value: "", label: "layer" }, ...list], (sort) =>
      store.update({ sort, ...(sort && !store.selection.color ? { color: sort } : {}) }),
    );
    this.controls.replaceChildren(this.color.element, this.sort.element);
  }

  /** Layer and head numbers; those of the heads stay in sight when the table scrolls. */
  private labels(scrolled = 0): { layers: Mark[]; heads: Mark[] } {
    const overview = this.overview!;
    const { tone } = this.scope.theme;
    const { layer: chosen, heads } = this.scope.store.selection;
    const half = overview.size / 2;
    const layers: Mark[] = [];
    const columns: Mark[] = [];
    const text = (x: number, y: number, label: string, bold: boolean, anchor: "middle" | "end", size = 10): Mark => ({
      kind: "text", x, y, text: label, size, anchor, bold, fill: bold ? tone.ink : tone.soft,
    }); // biome-ignore format: one text on one line
    if (overview.caption > 0) {
      const compact = overview.size < 44;
      for (const { x, y, layer, head } of overview.thumbs) {
        const label = compact ? `L${layer}H${head}` : `L${layer} H${head}`;
        const isChosen = layer === chosen && heads.includes(head);
        layers.push(
          text(x + half, y + overview.size + 10, label, isChosen, "middle", compact ? 9 : 10),
        );
      }
      return { layers, heads: columns };
    }
    const seen = new Set<string>();
    for (const { x, y, layer, head } of overview.thumbs) {
      if (!seen.has(`L${layer}`)) {
        layers.push(text(overview.left - 6, y + half + 3.5, `L${layer}`, layer === chosen, "end"));
      }
      if (!seen.has(`H${head}`)) {
        const at = scrolled + overview.top - 6;
        columns.push(text(x + half, at, `H${head}`, heads.includes(head), "middle"));
      }
      seen.add(`L${layer}`).add(`H${head}`);
    }
    return { layers, heads: columns };
  }

  private draw(): void {
    if (!this.overview) return;
    const { scrollTop, scrollLeft, clientWidth: width, clientHeight: height } = this.scroller;
    const context = prepare(this.canvas, width, height);
    context.translate(-scrollLeft, -scrollTop);
    const band = { top: scrollTop, bottom: scrollTop + height };
    paint(context, { marks: [...this.images, ...this.frames(this.scope.theme.tone.line)] }, band);
    this.drawOverlay();
  }

  private drawOverlay(): void {
    const overview = this.overview;
    if (!overview) return;
    const { scrollTop, scrollLeft, clientWidth: width, clientHeight: height } = this.scroller;
    const { hover } = this.scope.store;
    const { theme } = this.scope;
    const context = prepare(this.overlay, width, height);
    context.translate(-scrollLeft, -scrollTop);
    const band = { top: scrollTop, bottom: scrollTop + height };
    const labels = this.labels(scrollTop);
    paint(context, { marks: labels.layers }, band);
    const hovered = overview.thumbs
      .filter(({ layer, head }) => hover.head?.layer === layer && hover.head.head === head)
      .map(({ x, y }) => frame(x, y, overview.size, theme.tone.ink, 1));
    paint(context, { marks: [...hovered, ...this.chosenFrames()] }, band);
    if (scrollTop > 0) {
      context.fillStyle = theme.tone.panel;
      context.fillRect(scrollLeft, scrollTop, width, overview.top - 2);
    }
    paint(context, { marks: labels.heads }, band);
  }

  /** Scroll the chosen head into sight. */
  private reveal(): void {
    const { selection } = this.scope.store;
    const overview = this.overview!;
    const chosen = overview.thumbs.find(
      (thumb) => thumb.layer === selection.layer && thumb.head === selection.heads[0],
    );
    if (!chosen) return;
    const { scrollTop, clientHeight } = this.scroller;
    if (chosen.y < scrollTop + overview.top) this.scroller.scrollTop = chosen.y - overview.top - 8;
    const bottom = chosen.y + overview.size + overview.caption + 8;
    if (bottom > scrollTop + clientHeight) this.scroller.scrollTop = bottom - clientHeight;
  }

  private thumb(event: MouseEvent): Thumb | null {
    if (!this.overview) return null;
    const box = this.stage.getBoundingClientRect();
    return thumbAt(this.overview, event.clientX - box.left, event.clientY - box.top);
  }

  private point(event: PointerEvent): void {
    const thumb = this.thumb(event);
    this.stage.classList.toggle("pointing", thumb !== null);
    if (!thumb) {
      this.scope.store.point({});
      this.scope.tooltip.hide();
      return;
    }
    this.scope.store.point({ head: { layer: thumb.layer, head: thumb.head } });
    const { statistics } = this.scope.lens(this.scope.leading).block;
    const rows = Object.entries(statistics).map(([name, table]) => ({
      label: STATISTICS[name]?.label ?? name,
      value:
        `${formatNumber(table[thumb.layerIndex][thumb.head] ?? Number.NaN)} ${STATISTICS[name]?.unit ?? ""}`.trim(),
    }));
    this.scope.tooltip.show(event, `L${thumb.layer} H${thumb.head}`, rows);
  }

  private open(event: MouseEvent): void {
    const thumb = this.thumb(event);
    if (!thumb) return;
    const { store } = this.scope;
    const { layer, heads, view } = store.selection;
    const adds = event.shiftKey && thumb.layer === layer;
    const next = adds ? [...new Set([...heads, thumb.head])].sort((a, b) => a - b) : [thumb.head];
    store.update({
      layer: thumb.layer,
      heads: next,
      ...(view === "model" ? { view: "head" } : {}),
    });
  }
}

function frame(x: number, y: number, size: number, color: string, thickness: number): Mark {
  return { kind: "frame", x, y, width: size, height: size, color, thickness };
}

function range(table: readonly (readonly (number | null)[])[]): [number, number] {
  const values = table.flat().filter((value): value is number => value !== null);
  return [Math.min(...values), Math.max(...values)];
}
