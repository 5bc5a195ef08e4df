// Sentences of a report: text, links to heads and figures, findings with evidence, equations.

import { createElement, type VNode } from "preact";
import type { HeadId, SentencePart, Tree } from "../../generated/report.ts";
import type { Tip } from "../view/controls.tsx";
import { Button } from "../view/controls.tsx";
import { useReport } from "./report_context.ts";

export function Quiet({ text, title, click }: { text: string; title: string; click(): void }) {
  return (
    <Button class="quiet" title={title} onClick={click}>
      {text}
    </Button>
  );
}

/** Link to the card of a head: stays in the line, and can be opened in a new tab. */
export function HeadLink({ id }: { id: HeadId }) {
  const context = useReport();
  const [subject, layer, head] = id;
  return (
    <a
      class="head"
      href={addressOf(id)}
      title={`Everything known about L${layer} H${head} of ${context.titleOf(subject)}`}
      onClick={(event) => {
        event.preventDefault();
        context.openCard(id);
      }}
    >
      {`L${layer}\u00a0H${head}`}
    </a>
  );
}

/** Address that opens the card of a head: `#L7H9`; `#1.L7H9` of the second model. */
export function addressOf([subject, layer, head]: HeadId): string {
  return `#${subject ? `${subject}.` : ""}L${layer}H${head}`;
}

export function Sentence({ parts }: { parts: readonly SentencePart[] }) {
  const { numbers } = useReport();
  return (
    <>
      {parts.map((part) => {
        if (typeof part === "string") return intervals(part).map(shown);
        if ("head" in part) return <HeadLink key={part.head.join()} id={part.head} />;
        if ("aside" in part) return <Aside key={part.aside} text={part.aside} />;
        return (
          <span class="reference" key={part.figure}>
            {" ("}
            <a href={`#figure-${part.figure}`}>{numbers.get(part.figure) ?? part.figure}</a>)
          </span>
        );
      })}
    </>
  );
}

function Aside({ text }: { text: string }) {
  return <span class="aside">{text}</span>;
}

type Piece = string | readonly [value: string, interval: string];

/** Split a text at values with intervals, `43.1 % [42.2–44.0]`; `r = 0.82` stays on one line. */
function intervals(text: string): Piece[] {
  return text
    .replace(/ ([=<]) /g, "\u00a0$1\u00a0")
    .split(/((?:[^ ]+ )?\[[−\d][^\]]*\])/)
    .map((piece, i) => {
      const [, value, interval] = /^(.*?)( ?\[.*)$/.exec(i % 2 ? piece : "") ?? [];
      return interval === undefined ? piece : [value, interval];
    });
}

function shown(piece: Piece, i: number): string | VNode {
  if (typeof piece === "string") return piece;
  return (
    <span class="value" key={i}>
      {piece[0]}
      <span class="interval">{piece[1]}</span>
    </span>
  );
}

/** Rows of the tooltip of a finding: its intervals and its evidence. */
function evidenceOf(parts: readonly SentencePart[]): Tip["rows"] {
  return parts.flatMap((part): Tip["rows"] => {
    if (typeof part === "string") {
      return intervals(part).flatMap((piece) =>
        typeof piece === "string" ? [] : [[piece[0], piece[1].trim()] as const],
      );
    }
    return "aside" in part ? [[part.aside.replace(/^[\s(;,]+|\)$/g, ""), ""]] : [];
  });
}

/** One finding. Hover and focus show its intervals and tests; on paper and for screen readers these
 *  stand in the sentence. */
export function Finding({ parts, topic }: { parts: readonly SentencePart[]; topic: string }) {
  const context = useReport();
  const rows = evidenceOf(parts);
  const show = (place: { clientX: number; clientY: number }) =>
    context.showTip(place, "What bears it out", rows);
  const listeners = rows.length > 0 && {
    tabIndex: 0,
    onPointerMove: show,
    onPointerLeave: context.hideTip,
    onFocus(event: FocusEvent) {
      const { left, bottom } = (event.currentTarget as Element).getBoundingClientRect();
      show({ clientX: left, clientY: bottom - 8 });
    },
    onBlur: context.hideTip,
  };
  return (
    <li {...(listeners || {})}>
      {topic && <strong class="topic">{topic} </strong>}
      <Sentence parts={parts} />
    </li>
  );
}

const TAGS = new Set(["mrow", "mi", "mo", "mn", "mtext", "mfrac", "munder", "mover", "msub"]);

export function Equation({ tree }: { tree: Tree }) {
  return <math display="block">{branch(tree)}</math>;
}

function branch([first, ...children]: Tree): VNode {
  const tag = String(first);
  const nodes = children.map((child) => (Array.isArray(child) ? branch(child) : child));
  return createElement(TAGS.has(tag) ? tag : "mrow", null, ...nodes);
}
