// The card of one head, in a panel at the side: all evidence, neighbors, exemplars.

import { make, quiet } from "../view/element.ts";
import { arcOf } from "./arcs.ts";
import type { Card, HeadId } from "./data.ts";
import { canvas, type Scope } from "./draw.ts";
import { headLink } from "./text.ts";
import { roleOf } from "./variable_list.ts";

export class CardPanel {
  readonly element = make("aside", {
    class: "card",
    attributes: { "aria-label": "Head", tabindex: "-1" },
  });
  private opener: Element | null = null;
  /** The head shown, as `0.7.9`. */
  chosen = "";

  constructor(
    private readonly scope: Scope,
    private readonly changed: (id: HeadId | null) => void,
  ) {
    this.element.hidden = true;
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !this.element.hidden) this.close();
    });
  }

  open(id: HeadId): boolean {
    const [subject, layer, head] = id;
    const card = this.scope.report.cards[subject]?.find(
      (one) => one.layer === layer && one.head === head,
    );
    if (!card) return false;
    const active = document.activeElement;
    if (active && !this.element.contains(active)) this.opener = active;
    this.element.hidden = false;
    this.element.replaceChildren(...this.content(card, subject));
    this.element.scrollTop = 0;
    this.element.focus({ preventScroll: true });
    this.mark(id);
    this.changed(id);
    return true;
  }

  close(): void {
    this.element.hidden = true;
    this.mark(null);
    this.changed(null);
    // What was drawn again for the other width is found by its head.
    const { opener } = this;
    const name = opener?.getAttribute("data-head");
    const found = opener?.isConnected ? opener : document.querySelector(`[data-head="${name}"]`);
    if (found instanceof HTMLElement || found instanceof SVGElement) {
      found.focus({ preventScroll: true });
    }
  }

  /** Outline the head in every drawing. */
  private mark(id: HeadId | null): void {
    this.chosen = id?.join(".") ?? "";
    for (const element of document.querySelectorAll("[data-head].chosen")) {
      element.classList.remove("chosen");
    }
    if (!id) return;
    for (const element of document.querySelectorAll(`[data-head="${this.chosen}"]`)) {
      element.classList.add("chosen");
    }
  }

  private content(card: Card, subject: number): (Node | string)[] {
    const { title, page } = this.scope.report.subjects[subject];
    const close = quiet("Close", "Close (Escape)", () => this.close());
    const parts: (Node | string)[] = [
      make(
        "header",
        {},
        this.badge(card, subject),
        make("span", { class: "soft", text: title }),
        close,
      ),
      make("p", { class: "summary", text: card.summary }),
      ...this.picture(card, subject),
    ];
    if (page) {
      const href = `${page}#head=L${card.layer}H${card.head}`;
      const link = make("a", { class: "go", text: "Open in the explorer", attributes: { href } });
      parts.push(make("p", {}, link));
    }
    for (const [topic, rows] of card.evidence) {
      const lines = rows.map(([what, value, rank]) =>
        make(
          "tr",
          {},
          make("th", { text: what, attributes: { scope: "row" } }),
          make("td", { class: "share" }, shareBar(value)),
          make("td", { text: value }),
          make("td", { class: "soft", text: rank }),
        ),
      );
      parts.push(make("h3", { text: topic }), make("table", {}, make("tbody", {}, ...lines)));
    }
    if (card.nearest.length) {
      const items = card.nearest.map(([layer, head, apart]) => {
        const distance = apart === null ? "–" : `${apart.toFixed(3)} nats`;
        return make("li", {}, headLink([subject, layer, head], this.scope), ` ${distance}`);
      });
      parts.push(make("h3", { text: "Heads that attend most alike" }), make("ul", {}, ...items));
    }
    return parts;
  }

  /** The name of the head in the color and with the sign of what it does. */
  private badge({ layer, head }: Card, subject: number): HTMLElement {
    const { id, sign, name } = roleOf(this.scope.report, [subject, layer, head]);
    const badge = make("h2", {
      class: "badge",
      text: `L${layer} H${head}`,
      title: name,
      attributes: { "data-sign": sign },
    });
    badge.style.background = `var(--role-${id})`;
    badge.style.color = `var(--on-${id})`;
    return badge;
  }

  /** The head at work: its highest weights in the documents that were read. */
  private picture(card: Card, subject: number): Node[] {
    const width = Math.max(240, this.element.clientWidth - 40);
    const { id } = roleOf(this.scope.report, [subject, card.layer, card.head]);
    const drawings = card.exemplars.map((arc) => {
      const tokens = this.scope.report.documents[arc.document];
      const { group, height } = arcOf(tokens, arc, width, `var(--role-${id})`);
      const drawing = canvas(width, height, `${tokens[arc.query]} → ${tokens[arc.key]}`);
      drawing.setAttribute("role", "img");
      drawing.append(group);
      return drawing;
    });
    return drawings.length ? [make("h3", { text: "Its highest weights" }), ...drawings] : [];
  }
}

/** A share as a bar beside its number; nothing for other numbers. */
function shareBar(value: string): HTMLElement | null {
  const share = /^([\d.]+)\s%/.exec(value)?.[1];
  if (share === undefined) return null;
  const bar = make("i");
  bar.style.width = `${Math.min(100, Number(share))}%`;
  return bar;
}
