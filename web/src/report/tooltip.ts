// The one tooltip of a report: a heading and rows of label and number.

import { make } from "../view/element.ts";

export interface TooltipRow {
  readonly label: string;
  readonly value: string;
  readonly color?: string;
}

export class Tooltip {
  readonly element = make("div", { class: "tooltip", attributes: { role: "tooltip" } });

  constructor() {
    this.hide();
  }

  show(
    { clientX, clientY }: { clientX: number; clientY: number },
    heading: string,
    rows: readonly TooltipRow[],
  ): void {
    this.element.replaceChildren(
      make("strong", { text: heading }),
      ...rows.map(({ label, value, color }) => {
        const mark = color ? make("i") : null;
        if (mark && color) mark.style.background = color;
        return make("div", {}, mark, make("span", { text: label }), make("b", { text: value }));
      }),
    );
    this.element.hidden = false;
    const frame = this.element.offsetParent?.getBoundingClientRect() ?? new DOMRect();
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const [x, y] = [clientX - frame.left, clientY - frame.top];
    const left = x + 14 + width > frame.width - 6 ? x - width - 12 : x + 14;
    const top = y + 16 + height > frame.height - 6 ? y - height - 10 : y + 16;
    this.element.style.left = `${Math.max(4, left)}px`;
    this.element.style.top = `${Math.max(4, top)}px`;
  }

  hide(): void {
    this.element.hidden = true;
  }
}
