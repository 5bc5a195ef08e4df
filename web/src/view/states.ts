// The query token's state before and after the layer, as two strips.

import { type Neurons, saturation } from "../data/neurons.ts";
import { formatNumber } from "../data/number.ts";
import { stripPixels } from "../layout/neurons.ts";
import type { Mark } from "../layout/scene.ts";
import { paint, prepare } from "../paint/canvas.ts";
import { make } from "./element.ts";
import type { Scope } from "./scope.ts";

const LABEL = 150;
export const HEIGHT = 38;

export class StateStrips {
  private readonly canvas = make("canvas", { attributes: { role: "img" } });
  readonly element = make("div", { class: "states" }, this.canvas);
  private states: Neurons["states"] = null;
  /** The strips as marks, from the top of the element; none where there are no states. */
  marks: Mark[] = [];

  constructor(private readonly scope: Scope) {
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => scope.tooltip.hide());
  }

  render(neurons: Neurons, layer: number, token: string): void {
    this.states = neurons.states;
    this.marks = [];
    this.element.hidden = this.states === null;
    if (!this.states) return;
    const { theme } = this.scope;
    const width = this.element.clientWidth;
    const limit = saturation(this.states);
    const { marks } = this;
    this.states.forEach((state, i) => {
      const order = Array.from(state.keys());
      const y = 4 + i * 16;
      const text = i === 0 ? `state before L${layer}` : `state after L${layer}`;
      marks.push({
        kind: "text",
        x: LABEL - 8,
        y: y + 9.5,
        text,
        size: 11,
        anchor: "end",
        fill: theme.tone.soft,
      });
      const pixels = stripPixels([state], order, limit, theme);
      marks.push({
        kind: "image",
        x: LABEL,
        y,
        width: width - LABEL - 14,
        height: 12,
        columns: order.length,
        rows: 1,
        pixels,
      });
    });
    this.canvas.setAttribute("aria-label", `State of ${token} before and after layer ${layer}`);
    paint(prepare(this.canvas, width, HEIGHT), { marks }, { top: -1, bottom: HEIGHT });
  }

  private point(event: PointerEvent): void {
    if (!this.states) return;
    const box = this.canvas.getBoundingClientRect();
    const share = (event.clientX - box.left - LABEL) / (box.width - LABEL - 14);
    if (share < 0 || share >= 1) {
      this.scope.tooltip.hide();
      return;
    }
    const unit = Math.floor(share * this.states[0].length);
    this.scope.tooltip.show(event, `unit ${unit}`, [
      { label: "before", value: formatNumber(this.states[0][unit]) },
      { label: "after", value: formatNumber(this.states[1][unit]) },
    ]);
  }
}
