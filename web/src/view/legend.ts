// The color scale of the model view, with its ends.

import { formatNumber, STATISTICS } from "../data/number.ts";
import type { Mark } from "../layout/scene.ts";
import { widestEms } from "../paint/canvas.ts";
import { cssOf } from "../paint/color.ts";
import type { Theme } from "../paint/theme.ts";
import { make } from "./element.ts";

export class Legend {
  private readonly bar = make("i");
  private readonly low = make("span");
  private readonly high = make("span");
  readonly element = make("div", { class: "legend" }, this.low, this.bar, this.high);

  private name = "";

  /** The same for a file; nothing where there is no color. */
  marks(theme: Theme, x: number, y: number): Mark[] {
    if (this.name === "") return [];
    const style = { size: 11, fill: theme.tone.soft, anchor: "start" } as const;
    const low = `${this.name}  ${this.low.textContent}`;
    const from = x + widestEms([low]) * style.size + 8;
    const pixels = new Uint8ClampedArray(theme.scale.flatMap((rgb) => [...rgb, 255]));
    return [
      { kind: "text", x, y: y + 9, text: low, ...style },
      { kind: "image", x: from, y, width: 84, height: 10, columns: 256, rows: 1, pixels },
      { kind: "text", x: from + 92, y: y + 9, text: this.high.textContent ?? "", ...style },
    ];
  }

  render(theme: Theme, statistic: string, [low, high]: readonly [number, number]): void {
    this.name = "";
    this.element.hidden = statistic === "";
    if (statistic === "") return;
    const stops = [0, 64, 128, 191, 255].map((i) => cssOf(theme.scale[i]));
    this.bar.style.background = `linear-gradient(90deg, ${stops.join(", ")})`;
    this.low.textContent = formatNumber(low);
    this.high.textContent = `${formatNumber(high)} ${STATISTICS[statistic]?.unit ?? ""}`.trim();
    this.name = STATISTICS[statistic]?.label ?? statistic;
    this.element.title = STATISTICS[statistic]?.title ?? statistic;
  }
}
