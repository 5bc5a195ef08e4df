// Tour of a page that was saved without a story.

import type { Header } from "../../generated/payload.ts";
import { printed } from "../data/tokens.ts";
import type { Trace } from "../data/trace.ts";
import { blockOf, headCode, headName, type Selection } from "./selection.ts";

type Step = Header["story"][number];

const SINKS = {
  first_token: "the first token",
  special_token: "special tokens such as [SEP]",
  punctuation: "punctuation",
} as const;

/** Build steps that hold for every text, with its words and numbers. */
export function tourOf(trace: Trace, base: Selection, canRun: boolean): Step[] {
  const block = blockOf(trace, base.block);
  const { heads, here: inText } = block.roles;
  const roles = ((base.named === "text" && inText) || heads).flatMap((row, i) =>
    row.filter((_, h) => block.has(i, h)).map(({ role }) => role),
  );
  const all = roles.length;
  const sinks = (["first_token", "special_token", "punctuation"] as const)
    .map((role) => ({ role, count: roles.filter((other) => other === role).length }))
    .reduce((most, sink) => (sink.count > most.count ? sink : most));
  const word = base.word === null ? "a word" : `“${printed(block.queryTokens.texts[base.word])}”`;
  const head = `head=${headCode(base)}`;
  const steps: Step[] = [
    {
      caption: `What did it read? The arcs show which words head ${headName(base)} reads for ${word}, and how much; all shares of a word add up to 1.`,
      selection: head,
    },
    {
      caption: `Which head read it? A head is a small reader inside the model. Here are all ${all}: color and sign say what each does with the text.`,
      selection: "color=role",
    },
  ];
  if (sinks.count > 0) {
    steps.push({
      caption: `${sinks.count} of the ${all} are attention sinks: most of their attention goes to ${SINKS[sinks.role]}.`,
      selection: `color=role&role=${sinks.role}`,
    });
  }
  if (canRun || block.vectors.has(base.layer)) {
    steps.push({
      caption: `Why that word? What ${word} asks for (query) meets what each word offers (key); where they agree, the share is high.`,
      selection: `${head}&tab=neurons`,
    });
  }
  steps.push({
    caption:
      trace.effects || canRun
        ? "Does it matter? Reading is not using: Effect says what changes when a head is switched off."
        : "Does it matter? Reading is not using: only a run without the head can tell. Effect says how.",
    selection: `${head}&tab=effect${trace.effects ? "&color=effect" : ""}`,
  });
  return steps;
}
