// The color scale of the model view, with its ends.

import { formatNumber, STATISTICS } from "../data/number.ts";
import { cssOf } from "../paint/color.ts";
import type { Theme } from "../paint/theme.ts";
import { make } from "./element.ts";

export class Legend {
  private readonly bar = make("i");
  private readonly low = make("span");
  private readonly high = make("span");
  readonly element = make("div", { class: "legend" }, this.low, this.bar, this.high);

  render(theme: Theme, statistic: string, [low, high]: readonly [number, number]): void {
    this.element.hidden = statistic === "";
    if (statistic === "") return;
    const stops = [0, 64, 128, 191, 255].map((i) => cssOf(theme.scale[i]));
    this.bar.style.background = `linear-gradient(90deg, ${stops.join(", ")})`;
    this.low.textContent = formatNumber(low);
    this.high.textContent = `${formatNumber(high)} ${STATISTICS[statistic]?.unit ?? ""}`.trim();
    this.element.title = STATISTICS[statistic]?.title ?? statistic;
  }
}
