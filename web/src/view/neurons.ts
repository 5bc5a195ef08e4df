// The neuron pane: how the chosen head makes the attention of one query.

import { entriesOf, printed } from "../data/axis.ts";
import { type Neurons, neuronOrder, neuronsOf, saturation } from "../data/neurons.ts";
import { formatNumber } from "../data/number.ts";
import type { Block } from "../data/trace.ts";
import {
  equation,
  headerMarks,
  legendStops,
  type NeuronColumn,
  type NeuronLayout,
  neuronLayout,
  rowMarks,
  STRIP_HEIGHT,
  STRIP_Y,
} from "../layout/neurons.ts";
import type { Mark, Scene } from "../layout/scene.ts";
import { paint, prepare, widestEms } from "../paint/canvas.ts";
import { blockOf, type Selection } from "../state/selection.ts";
import { make, segments, select } from "./element.ts";
import type { Scope } from "./scope.ts";
import { StateStrips } from "./states.ts";

export class NeuronView {
  private readonly title = make("strong");
  private query = select("Query", [], () => {});
  private readonly order;
  private readonly low = make("span");
  private readonly high = make("span");
  private readonly bar = make("i");
  private readonly legend = make("div", { class: "legend" }, this.low, this.bar, this.high);
  private readonly chooser = make("div", { class: "chooser" });
  private readonly fixed = make("canvas", {
    class: "fixed",
    attributes: { "aria-hidden": "true" },
  });
  private readonly canvas = make("canvas", { attributes: { role: "img" } });
  private readonly stage = make(
    "div",
    { class: "stage" },
    make("div", { class: "film" }, this.canvas),
  );
  private readonly scroller = make(
    "div",
    {
      class: "scroller",
      attributes: { tabindex: "0", role: "group", "aria-label": "Neurons of each key" },
    },
    this.stage,
  );
  private readonly states: StateStrips;
  private readonly sum = make("p", { class: "caption equation" });
  private readonly empty = make("div", { class: "empty" });
  private readonly body = make("div", { class: "neuron-body" });
  readonly element: HTMLElement;
  private neurons: Neurons | null = null;
  private layout: NeuronLayout | null = null;
  private shownOrder: number[] = [];
  private marks: Mark[] = [];
  private header: Mark[] = [];
  private built = "";
  private hovered: number | null = null;

  constructor(private readonly scope: Scope) {
    const { store } = scope;
    this.order = segments(
      "Order of neurons",
      [
        { value: "number", label: "By number", title: "Neurons as the model numbers them (N)" },
        {
          value: "contribution",
          label: "By contribution",
          title: "First the neurons that raise the attended keys above the others (N)",
        },
      ],
      (order) => store.update({ order: order as Selection["order"] }),
    );
    this.states = new StateStrips(scope);
    this.body.append(this.fixed, this.scroller, this.states.element, this.sum);
    const head = make("div", { class: "pane-head" }, this.chooser, this.legend);
    this.element = make(
      "section",
      { class: "pane neurons", attributes: { "aria-label": "Neuron view" } },
      head,
      this.body,
      this.empty,
    );
    this.scroller.addEventListener("scroll", () => this.draw());
    this.stage.addEventListener("pointermove", (event) => this.point(event, this.stage, 0));
    this.fixed.addEventListener("pointermove", (event) => this.point(event, this.fixed, -1));
    for (const part of [this.stage, this.fixed]) {
      part.addEventListener("pointerleave", () => {
        this.hovered = null;
        scope.tooltip.hide();
        this.explainSum();
      });
    }
    this.stage.addEventListener("click", (event) => this.pin(event));
  }

  render(): void {
    if (this.element.hidden) return;
    const { selection } = this.scope.store;
    const block = blockOf(this.scope.traces[this.scope.leading], selection);
    const query = selection.queries.at(-1) ?? defaultQuery(block);
    const head = selection.heads[0];
    this.neurons = neuronsOf(block, selection.layer, head, query);
    this.body.hidden = this.neurons === null;
    this.legend.hidden = this.neurons === null;
    this.empty.hidden = this.neurons !== null;
    this.offer(block);
    this.title.textContent = `L${selection.layer} H${head}`;
    this.query.set(String(query));
    this.order.set(selection.order);
    if (!this.neurons) {
      this.explainEmpty(block);
      return;
    }
    this.lay(block);
  }

  scene(): Scene {
    if (!this.neurons || !this.layout) {
      const { tone } = this.scope.theme;
      return { width: 200, height: 40, background: tone.panel, marks: [] };
    }
    const { top } = this.layout;
    const rows = this.marks.map((mark) =>
      mark.kind === "line"
        ? { ...mark, y1: mark.y1 + top, y2: mark.y2 + top }
        : { ...mark, y: mark.y + top },
    );
    return {
      width: this.layout.width,
      height: top + this.layout.height,
      background: this.scope.theme.tone.panel,
      marks: [...rows, ...this.header],
    };
  }

  private offer(block: Block): void {
    const key = `${block.name}/${this.scope.leading}`;
    if (key === this.built) return;
    this.built = key;
    const choices = block.queryTokens.texts.map((text, i) => ({
      value: String(i),
      label: `${i}  ${printed(text)}`,
    }));
    this.query = select("Query", choices, (query) =>
      this.scope.store.update({ queries: [Number(query)] }),
    );
    this.chooser.replaceChildren(this.title, this.query.element, this.order.element);
  }

  private lay(block: Block): void {
    const { theme } = this.scope;
    const { selection } = this.scope.store;
    const neurons = this.neurons!;
    const width = this.scroller.clientWidth;
    if (width === 0) return;
    const entries = entriesOf(block.keyTokens, "token");
    this.layout = neuronLayout(
      width,
      entries.length,
      neurons,
      widestEms(entries.map((entry) => printed(entry.label))),
    );
    this.shownOrder = neuronOrder(neurons, selection.order);
    const precision = block.planes.fine ? "fine" : "coarse";
    this.marks = rowMarks(neurons, entries, this.layout, this.shownOrder, theme, precision);
    const token = printed(block.queryTokens.texts[neurons.query]);
    this.header = headerMarks(neurons, token, this.layout, this.shownOrder, theme);
    const limit = saturation(neurons.keys);
    this.low.textContent = `−${formatNumber(limit)}`;
    this.high.textContent = `+${formatNumber(limit)} of k`;
    this.bar.style.background = `linear-gradient(90deg, ${legendStops(theme).join(", ")})`;
    this.legend.title =
      "Blue is positive, orange negative; full color at the 99th percentile of each column";
    this.stage.style.height = `${this.layout.height}px`;
    this.canvas.setAttribute(
      "aria-label",
      `Query, keys and their products for ${token}: ${equation(neurons, strongest(neurons))}`,
    );
    this.states.render(neurons, selection.layer, token);
    const context = prepare(this.fixed, width, this.layout.top);
    paint(context, { marks: this.header }, { top: -1e9, bottom: 1e9 });
    this.draw();
    this.explainSum();
  }

  private draw(): void {
    if (!this.layout) return;
    const { scrollTop, clientWidth: width, clientHeight: height } = this.scroller;
    const context = prepare(this.canvas, width, height);
    context.translate(0, -scrollTop);
    const { rowHeight } = this.layout;
    const { selection } = this.scope.store;
    context.fillStyle = this.scope.theme.tone.raised;
    for (const row of [this.hovered, ...selection.keys]) {
      if (row !== null) context.fillRect(0, row * rowHeight, width, rowHeight);
    }
    paint(context, { marks: this.marks }, { top: scrollTop, bottom: scrollTop + height });
  }

  private explainSum(): void {
    const { neurons } = this;
    if (!neurons) return;
    const key = this.hovered ?? this.scope.store.selection.keys.at(-1) ?? strongest(neurons);
    const block = blockOf(this.scope.traces[this.scope.leading], this.scope.store.selection);
    const pair = `${printed(block.queryTokens.texts[neurons.query])} → ${printed(block.keyTokens.texts[key])}`;
    const note = neurons.isSoftmax
      ? ""
      : "  (attention as recorded: it is not the plain softmax of these scores)";
    this.sum.textContent = `${pair}   ${equation(neurons, key)}${note}`;
  }

  private explainEmpty(block: Block): void {
    const { layer } = this.scope.store.selection;
    const has = block.vectors?.layers ?? [];
    const why = has.length
      ? `This page carries the vectors of layers ${has.join(", ")} only, not of layer ${layer}.`
      : "This trace carries no queries and keys: it was made from attention alone, saved with neurons=False, or of a family whose vectors are not read.";
    this.empty.replaceChildren(
      make("p", { text: why }),
      make("p", { text: "Trace a model with headscope.load(…).trace(…) to see its neurons." }),
    );
  }

  private column(x: number): NeuronColumn | undefined {
    return this.layout?.columns.find((column) => x >= column.x && x < column.x + column.width);
  }

  private point(event: PointerEvent, part: HTMLElement, fixedRow: number): void {
    const { neurons, layout } = this;
    if (!neurons || !layout) return;
    const box = part.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const row = fixedRow < 0 ? -1 : Math.floor(y / layout.rowHeight);
    const isRow = row >= 0 && row < neurons.keys.length;
    const isStrip = fixedRow < 0 && y >= STRIP_Y && y < STRIP_Y + STRIP_HEIGHT;
    const before = this.hovered;
    this.hovered = isRow ? row : null;
    if (before !== this.hovered) {
      this.draw();
      this.explainSum();
    }
    const column = this.column(x);
    const rows = column && (isRow || isStrip) ? this.numbers(column, x, isRow ? row : null) : null;
    if (!rows) {
      this.scope.tooltip.hide();
      return;
    }
    this.scope.tooltip.show(event, rows.heading, rows.list);
  }

  private numbers(column: NeuronColumn, x: number, row: number | null) {
    const neurons = this.neurons!;
    const share = (x - column.x) / column.width;
    const value = (label: string, number: number) => ({ label, value: formatNumber(number) });
    if (column.name === "value" && neurons.values) {
      const i = Math.floor(share * neurons.values[0].length);
      const output = neurons.output ? [value("head output", neurons.output[i])] : [];
      const list =
        row === null
          ? output
          : [
              value("value", neurons.values[row][i]),
              value("× softmax", neurons.values[row][i] * neurons.weights[row]),
              ...output,
            ];
      return { heading: `value neuron ${i}`, list };
    }
    if (column.name !== "key" && column.name !== "product") return null;
    const i = this.shownOrder[Math.floor(share * this.shownOrder.length)];
    const list = [value("q", neurons.q[i])];
    if (row !== null)
      list.push(value("k", neurons.keys[row][i]), value("q × k", neurons.products[row][i]));
    list.push(value("contribution", neurons.contribution[i]));
    return { heading: `neuron ${i}`, list };
  }

  private pin(event: MouseEvent): void {
    if (!this.layout || !this.neurons) return;
    const y = event.clientY - this.stage.getBoundingClientRect().top;
    const row = Math.floor(y / this.layout.rowHeight);
    if (row < 0 || row >= this.neurons.keys.length) return;
    const { keys } = this.scope.store.selection;
    this.scope.store.update({
      keys: keys.includes(row) ? keys.filter((key) => key !== row) : [row],
    });
  }
}

/** The last token that is not special: in causal models it sees the whole text. */
function defaultQuery(block: Block): number {
  const last = block.queryTokens.special.lastIndexOf(false);
  return Math.max(0, last);
}

function strongest(neurons: Neurons): number {
  let best = 0;
  neurons.weights.forEach((weight, key) => {
    if (weight > neurons.weights[best]) best = key;
  });
  return best;
}
