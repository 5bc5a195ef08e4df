// Tour of a page: five steps, each with the element that it points at.

import type { Header } from "../../generated/payload.ts";
import { printed } from "../data/tokens.ts";
import type { Trace } from "../data/trace.ts";
import { blockOf, headCode, headName, parseHead, type Selection } from "./selection.ts";

/** Element that a step points at. */
export type Target = "answer" | "sentence" | "grid" | "head" | "effect" | "evidence";

/** Numbers of a caption that are read from the page when it is shown. */
export type Numbers = "reader" | "twist" | "decider";

export type Step = Header["story"][number] & {
  readonly target: Target;
  readonly numbers?: Numbers;
};

const SINKS = {
  first_token: "the first token",
  special_token: "special tokens such as [SEP]",
  punctuation: "punctuation",
} as const;

/** Steps of an author's story; the selection says what each is about. */
export function storyOf(story: Header["story"]): Step[] {
  return story.map((step) => {
    const fields = new URLSearchParams(step.selection);
    const isEffect = fields.get("tab") === "effect";
    const isGrid = fields.has("color") || fields.has("role") || fields.has("sort");
    const target = isEffect
      ? "effect"
      : fields.has("answers") || fields.has("off")
        ? "answer"
        : parseHead(fields.get("head") ?? "")
          ? "head"
          : isGrid
            ? "grid"
            : "sentence";
    return { ...step, target };
  });
}

/** Steps that hold for every text, with its words and numbers. */
export function tourOf(trace: Trace, base: Selection, header: Header, canRun: boolean): Step[] {
  return header.tour && trace.effects?.kind === "prediction" && trace.predictions
    ? writerTour(header.tour, base, header.wires)
    : readerTour(trace, base, canRun);
}

/** Tour of a language model: from the answer to the head that decides. */
function writerTour(
  { reader, decider }: NonNullable<Header["tour"]>,
  base: Selection,
  wires: Header["wires"],
): Step[] {
  const word = base.word === null ? "" : `&word=${base.word}`;
  return [
    {
      caption:
        "This is the model's answer, with its probability. Under it: what else it might have said.",
      selection: `head=${decider}${word}&answers=1`,
      target: "answer",
    },
    { caption: "", numbers: "reader", selection: `head=${reader}${word}`, target: "sentence" },
    {
      caption: "",
      numbers: "twist",
      selection: `head=${reader}${word}&off=${reader}`,
      target: "answer",
    },
    {
      caption: "",
      numbers: "decider",
      selection: `head=${decider}${word}&color=effect&sort=1`,
      target: "effect",
    },
    wires
      ? {
          caption:
            `Who feeds whom: the largest of ${wires.total.toLocaleString("en")} wires between heads, ` +
            `measured on ${wires.pairs.length} pairs of sentences. Choose one for its certainty.`,
          selection: `head=${decider}${word}&tab=wires`,
          target: "head",
        }
      : {
          caption:
            "All this is one sentence. Whether a head always reads like this, a corpus says; " +
            "whether it always decides, runs over many sentences (hs.effects).",
          selection: `head=${decider}${word}&tab=evidence`,
          target: "evidence",
        },
  ];
}

/** Tour of a model without predictions, or without measured effects. */
function readerTour(trace: Trace, base: Selection, canRun: boolean): Step[] {
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
  const hasVectors = canRun || block.vectors.has(base.layer);
  const steps: Step[] = [
    { caption: "", numbers: "reader", selection: `${head}&filter=top:3`, target: "sentence" },
    {
      caption:
        sinks.count > 0
          ? `All ${all} heads. ${sinks.count} of them attend mostly to a sink: ${SINKS[sinks.role]}.`
          : `All ${all} heads: color and sign say what each does with the text.`,
      selection: sinks.count > 0 ? `color=role&role=${sinks.role}` : "color=spread&sort=1",
      target: "grid",
    },
    trace.effects
      ? {
          caption: "",
          numbers: "decider",
          selection: `${head}&color=effect&sort=1&tab=effect`,
          target: "effect",
        }
      : {
          caption: `Reading is not using. Only a run without ${headName(base)} can tell whether it matters.`,
          selection: `${head}&color=distance&tab=effect`,
          target: "effect",
        },
    {
      caption: hasVectors
        ? `Why that word? What ${word} asks for (query) meets what each word offers (key); where they agree, the share is high.`
        : "The whole head at once: a row for each word that reads, a column for each that is read.",
      selection: `${head}&tab=${hasVectors ? "neurons" : "matrix"}`,
      target: "head",
    },
    {
      caption:
        "One text is one case. What the head does in general is measured over a corpus of documents.",
      selection: `${head}&tab=evidence`,
      target: "evidence",
    },
  ];
  return steps;
}
