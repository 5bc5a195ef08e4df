// The help sheet: keys and what the picture means.

import { make, quiet } from "./element.ts";
import { KEYS } from "./keyboard.ts";

export class Help {
  private readonly close = quiet("Close", "Close (Escape)", () => this.element.close());
  readonly element = make(
    "dialog",
    {
      class: "help",
      attributes: { "aria-label": "Keyboard and help", closedby: "any" },
      on: { keydown: (event) => this.key(event as KeyboardEvent) },
    },
    make("h2", { text: "Keyboard" }),
    make(
      "dl",
      {},
      ...KEYS.flatMap(([keys, meaning]) => [
        make("dt", { text: keys }),
        make("dd", { text: meaning }),
      ]),
    ),
    make("h2", { text: "Reading it" }),
    make("p", {
      text:
        "A line runs from a query (left) to a key (right) that it attends to; it is stronger " +
        "the larger the weight. Hover a token to preview it, click to pin it, pin several to sum " +
        "their attention. Each head has a color: click its chip to add it, double click to see it alone.",
    }),
    make("p", { text: "≈ marks numbers known to two digits only, in inputs over 128 tokens." }),
    this.close,
  );

  show(): void {
    this.element.showModal();
    this.close.focus();
  }

  /** Keys stay in the sheet: what lies under it does not move. */
  private key(event: KeyboardEvent): void {
    event.stopPropagation();
    if (event.key !== "Escape" && event.key !== "?") return;
    event.preventDefault();
    this.element.close();
  }
}
