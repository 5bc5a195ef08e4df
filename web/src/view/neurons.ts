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
import { emptyScene, type Mark, moved } from "../layout/scene.ts";
import { paint, prepare, widestEms } from "../paint/canvas.ts";
import { blockOf, type Selection } from "../state/selection.ts";
import { make, segments, select } from "./element.ts";
import type { Captioned } from "./saving.ts";
import type { Scope } from "./scope.ts";
import { HEIGHT as STATES_HEIGHT, StateStrips } from "./states.ts";

export class NeuronView {
  private readonly place = make("strong");
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
      attributes: {
        tabindex: "0",
        role: "group",
        "aria-label": "Neurons of each key: up and down move, Enter pins the key",
      },
      on: {
        keydown: (event) => this.key(event as KeyboardEvent),
        blur: () => this.leave(),
      },
    },
    this.stage,
  );
  private readonly states: StateStrips;
  private readonly sum = make("p", {
    class: "caption equation",
    attributes: { "aria-live": "polite" },
  });
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
  /** Whether the arrow keys, not the pointer, are at the hovered row. */
  private isKeyed = false;

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
      part.addEventListener("pointerleave", () => this.leave());
    }
    this.stage.addEventListener("click", (event) => this.pin(this.row(event)));
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
    this.place.textContent = `L${selection.layer} H${head}`;
    this.query.set(String(query));
    this.order.set(selection.order);
    if (!this.neurons) {
      this.explainEmpty(block);
      return;
    }
    if (this.hovered !== null && this.hovered >= this.neurons.keys.length) this.hovered = null;
    this.lay(block);
  }

  /** What stands above it in a file with other views. */
  get title(): string {
    return `Neuron view: ${this.place.textContent}`;
  }

  scenes(): Captioned[] {
    const { tone } = this.scope.theme;
    if (!this.neurons || !this.layout) return [{ scene: emptyScene(tone.panel), caption: "" }];
    const { top, rowHeight, width } = this.layout;
    const pinned = this.scope.store.selection.keys.map((key): Mark => {
      const y = top + key * rowHeight;
      return { kind: "rect", x: 0, y, width, height: rowHeight, fill: tone.raised };
    });
    const below = top + this.layout.height;
    const strips = this.states.marks.map((mark) => moved(mark, 0, below));
    const scene = {
      width,
      height: below + (strips.length ? STATES_HEIGHT : 0),
      background: tone.panel,
      marks: [
        ...pinned,
        ...this.marks.map((mark) => moved(mark, 0, top)),
        ...this.header,
        ...strips,
      ],
    };
    return [{ scene, caption: this.sum.textContent ?? "" }];
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
    this.chooser.replaceChildren(this.place, this.query.element, this.order.element);
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
    if (this.hovered === null || !this.isKeyed) return;
    context.strokeStyle = this.scope.theme.tone.accent;
    context.lineWidth = 2;
    context.strokeRect(3, this.hovered * rowHeight + 1, width - 6, rowHeight - 2);
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
    this.look(isRow ? row : null, false);
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

  /** Look at a key's row, or at none. */
  private look(row: number | null, isKeyed: boolean): void {
    if (row === this.hovered && isKeyed === this.isKeyed) return;
    this.hovered = row;
    this.isKeyed = isKeyed;
    this.draw();
    this.explainSum();
  }

  private leave(): void {
    this.scope.tooltip.hide();
    this.look(null, false);
  }

  private row(event: MouseEvent): number | null {
    if (!this.layout || !this.neurons) return null;
    const y = event.clientY - this.stage.getBoundingClientRect().top;
    const row = Math.floor(y / this.layout.rowHeight);
    return row >= 0 && row < this.neurons.keys.length ? row : null;
  }

  private key(event: KeyboardEvent): void {
    if (!this.neurons || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") this.leave(); // and the explorer unpins
    const last = this.neurons.keys.length - 1;
    const at = this.hovered ?? -1;
    const moves: Record<string, number> = {
      ArrowDown: Math.min(at + 1, last),
      ArrowUp: Math.max(at - 1, 0),
      Home: 0,
      End: last,
    };
    if (event.key in moves) this.walk(moves[event.key]);
    else if (event.key === "Enter" || event.key === " ") this.pin(this.hovered);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private walk(row: number): void {
    const { rowHeight } = this.layout!;
    const { scrollTop, clientHeight } = this.scroller;
    const y = row * rowHeight;
    if (y < scrollTop) this.scroller.scrollTop = y;
    if (y + rowHeight > scrollTop + clientHeight)
      this.scroller.scrollTop = y + rowHeight - clientHeight;
    this.scope.tooltip.hide();
    this.look(row, true);
  }

  private pin(row: number | null): void {
    if (row === null) return;
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
