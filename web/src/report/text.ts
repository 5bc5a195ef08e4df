// Sentences: text, heads as buttons, figures as links.

import { make } from "../view/element.ts";
import type { HeadId, MathTree, Part } from "./data.ts";
import type { Scope } from "./draw.ts";
import type { TooltipRow } from "./tooltip.ts";

/** A link, not a button: it stays in the line, and opens in a new tab if one likes. */
export function headLink(id: HeadId, scope: Scope): HTMLAnchorElement {
  const [subject, layer, head] = id;
  const { title } = scope.report.subjects[subject];
  return make("a", {
    class: "head",
    text: `L${layer}\u00a0H${head}`,
    title: `Everything known about L${layer} H${head} of ${title}`,
    attributes: { href: addressOf(id) },
    on: {
      click: (event) => {
        event.preventDefault();
        scope.openCard(id);
      },
    },
  });
}

export function sentence(
  parts: readonly Part[],
  scope: Scope,
  numbers: ReadonlyMap<string, string>,
): (Node | string)[] {
  return parts.flatMap((part): (Node | string)[] | Node => {
    if (typeof part === "string") return intervals(part);
    if ("head" in part) return headLink(part.head, scope);
    if ("aside" in part) return make("span", { class: "aside", text: part.aside });
    const link = make("a", {
      text: numbers.get(part.figure) ?? part.figure,
      attributes: { href: `#figure-${part.figure}` },
    });
    return make("span", { class: "reference" }, " (", link, ")");
  });
}

/** Text with its intervals, `43.1 % [42.2–44.0]`, set back; `r = 0.82` stays on one line. */
function intervals(text: string): (Node | string)[] {
  return text
    .replace(/ ([=<]) /g, "\u00a0$1\u00a0")
    .split(/((?:[^ ]+ )?\[[−\d][^\]]*\])/)
    .map((piece, i) => {
      const [, value, interval] = /^(.*?)( ?\[.*)$/.exec(i % 2 ? piece : "") ?? [];
      if (interval === undefined) return piece;
      const bounds = make("span", { class: "interval", text: interval });
      return make("span", { class: "value" }, value, bounds);
    });
}

/** One finding: a short sentence. What bears it out, its intervals and tests, is told on hover and
 *  focus; on paper and to screen readers it stands in the sentence. */
export function finding(
  parts: readonly Part[],
  scope: Scope,
  numbers: ReadonlyMap<string, string>,
  topic: string,
): HTMLElement {
  const item = make("li", {}, topic ? make("strong", { class: "topic", text: `${topic} ` }) : null);
  item.append(...sentence(parts, scope, numbers));
  const rows: TooltipRow[] = Array.from(item.querySelectorAll(".value, .aside"), (one) => {
    const [bounds, value] = [one.querySelector(".interval"), one.firstChild];
    const plain = (one.textContent ?? "").replace(/^[\s(;,]+|\)$/g, "");
    return bounds
      ? { label: value?.textContent ?? "", value: (bounds.textContent ?? "").trim() }
      : { label: plain, value: "" };
  });
  if (rows.length === 0) return item;
  item.tabIndex = 0;
  const tell = (at: { clientX: number; clientY: number }) =>
    scope.tooltip.show(at, "What bears it out", rows);
  item.addEventListener("pointermove", tell);
  item.addEventListener("pointerleave", () => scope.tooltip.hide());
  item.addEventListener("focus", () => {
    const { left, bottom } = item.getBoundingClientRect();
    tell({ clientX: left, clientY: bottom - 8 });
  });
  item.addEventListener("blur", () => scope.tooltip.hide());
  return item;
}

const MATH = "http://www.w3.org/1998/Math/MathML";
const TAGS = new Set(["mrow", "mi", "mo", "mn", "mtext", "mfrac", "munder", "mover", "msub"]);

/** An equation from its tree; tags that are none of MathML's few are left out. */
export function equation(tree: MathTree): Element {
  const math = document.createElementNS(MATH, "math");
  math.setAttribute("display", "block");
  math.append(branch(tree));
  return math;
}

function branch([tag, ...children]: MathTree): Element {
  const element = document.createElementNS(MATH, TAGS.has(tag) ? tag : "mrow");
  for (const child of children) {
    if (typeof child === "string") element.append(child);
    else if (Array.isArray(child)) element.append(branch(child));
  }
  return element;
}

/** Where the card of a head opens: `#L7H9`; `#1.L7H9` of the second model. */
export function addressOf([subject, layer, head]: HeadId): string {
  return `#${subject ? `${subject}.` : ""}L${layer}H${head}`;
}
