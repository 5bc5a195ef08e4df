// Sentences: text, heads as buttons, figures as links.

import { make } from "../view/element.ts";
import type { HeadId, MathTree, Part } from "./data.ts";
import type { Scope } from "./draw.ts";

/** A link, not a button: it stays in the line, and opens in a new tab if one likes. */
export function headLink(id: HeadId, scope: Scope): HTMLAnchorElement {
  const [subject, layer, head] = id;
  const { title } = scope.report.subjects[subject];
  return make("a", {
    class: "head",
    text: `L${layer}\u00a0H${head}`,
    title: `Everything known about L${layer} H${head} of ${title}`,
    attributes: { href: `#card=${id.join(".")}` },
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
    const link = make("a", {
      text: numbers.get(part.figure) ?? part.figure,
      attributes: { href: `#figure-${part.figure}` },
    });
    return make("span", { class: "reference" }, " (", link, ")");
  });
}

/** Text with its intervals, `[42.2–44.0]`, set back; `r = 0.82` stays on one line. */
function intervals(text: string): (Node | string)[] {
  return text
    .replace(/ ([=<]) /g, "\u00a0$1\u00a0")
    .split(/(\[[−\d][^\]]*\])/)
    .map((piece, i) => (i % 2 ? make("span", { class: "interval", text: piece }) : piece));
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
