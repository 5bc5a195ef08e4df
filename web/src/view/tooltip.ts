// The one tooltip of an explorer: a heading and rows of label and number.

import { make } from "./element.ts";

export interface TooltipRow {
  readonly label: string;
  readonly value: string;
  readonly color?: string;
}

export class Tooltip {
  readonly element = make("div", { class: "tooltip", attributes: { role: "tooltip" } });

  constructor() {
    this.element.hidden = true;
  }

  show(
    event: { clientX: number; clientY: number },
    heading: string,
    rows: readonly TooltipRow[],
    side: "left" | "right" = "right",
  ): void {
    this.element.replaceChildren(
      make("strong", { text: heading }),
      ...rows.map((row) => {
        const mark = make("i");
        if (row.color) mark.style.background = row.color;
        return make(
          "div",
          {},
          row.color ? mark : null,
          make("span", { text: row.label }),
          make("b", { text: row.value }),
        );
      }),
    );
    this.element.hidden = false;
    this.place(event.clientX, event.clientY, side);
  }

  hide(): void {
    this.element.hidden = true;
  }

  private place(x: number, y: number, side: "left" | "right"): void {
    const frame = this.element.offsetParent?.getBoundingClientRect() ?? new DOMRect();
    const { offsetWidth: width, offsetHeight: height } = this.element;
    let left = x - frame.left + 14;
    const before = x - frame.left - width - 14;
    if (side === "left" && before > 0) left = before;
    let top = y - frame.top + 16;
    if (left + width > frame.width - 6) left = x - frame.left - width - 12;
    if (top + height > frame.height - 6) top = y - frame.top - height - 10;
    this.element.style.left = `${Math.max(4, left)}px`;
    this.element.style.top = `${Math.max(4, top)}px`;
  }
}
