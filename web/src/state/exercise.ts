// Exercise of a page: questions about its heads, a guess, the answer and the score.

import { computed, signal } from "@preact/signals";
import type { ExercisePart, Header } from "../../generated/payload.ts";
import { printed } from "../data/tokens.ts";
import type { Trace } from "../data/trace.ts";
import { blockOf, type HeadId, type Selection } from "./selection.ts";
import type { SelectionStore } from "./selection_store.ts";

/** Highest score of a question. */
export const FULL_SCORE = 3;
/** Shares of the largest effect that score 2 and 1. */
const SHARES = [0.5, 0.2] as const;

export class Exercise {
  readonly guess = signal<HeadId | null>(null);
  readonly isRevealed = signal(false);
  /** Score of each question whose answer was shown; 0 without a guess. */
  readonly scores = signal<ReadonlyMap<number, number>>(new Map());
  readonly questions: readonly ExercisePart[];
  private readonly firstLayer: number;

  constructor(
    header: Header,
    traces: readonly Trace[],
    private readonly store: SelectionStore,
  ) {
    const first = traces[header.examples[0].traces[0]];
    this.firstLayer = blockOf(first, store.base.block).layers[0];
    this.questions = header.exercise ?? usualQuestions(first, store.base);
  }

  /** Question on the page; null without one. */
  readonly asked = computed((): ExercisePart | null => {
    const { exercise } = this.store.selection.value;
    return this.questions[exercise - 1] ?? null;
  });

  /** Whether roles and effects are hidden. */
  readonly isHidden = computed(() => this.asked.value !== null && !this.isRevealed.value);

  /** Open a question, or leave the exercise with 0. */
  open(number: number): void {
    this.guess.value = null;
    this.isRevealed.value = false;
    const question = this.questions[number - 1];
    const plain = {
      color: "role",
      role: "",
      sorted: false,
      answers: false,
      also: [],
      pane: 1,
    } as const;
    if (question) {
      // The page opens on the head that decides: the first one gives nothing away.
      const isNamed = /(^|&)head=/.test(question.selection);
      const first = isNamed ? {} : { layer: this.firstLayer, head: 0 };
      const keep = { ...plain, ...first, exercise: number, story: -1, edits: [] };
      this.store.open(question.selection, keep);
    } else this.store.update({ exercise: 0 });
  }

  /** Show the answer, and add the guess's score. */
  reveal(score: number): void {
    const { exercise } = this.store.selection.peek();
    this.isRevealed.value = true;
    this.scores.value = new Map(this.scores.peek()).set(exercise, score);
  }
}

/** Score of a head by its effect, as a share of the largest one. The sign counts. */
export function scoreOf(effect: number, largest: number): number {
  const share = effect / largest;
  if (share >= 1 - 1e-9) return FULL_SCORE;
  return share >= SHARES[0] ? 2 : share >= SHARES[1] ? 1 : 0;
}

const FINDABLE = [
  ["induction", "Find a head that reads what followed the same word earlier."],
  ["duplicate_token", "Find a head that links equal words."],
  ["previous_token", "Find a head that reads the token before, whatever it is."],
  ["next_token", "Find a head that reads the token after."],
] as const;

/** Questions of a page that was saved without any. */
function usualQuestions(trace: Trace, base: Selection): ExercisePart[] {
  const questions: ExercisePart[] = [];
  const { effects } = trace;
  if (effects?.kind === "prediction") {
    const over = base.against.trim() ? ` over “${base.against.trim()}”` : "";
    const answer = printed(effects.candidates[0]);
    questions.push({
      question: `Which head decides for “${answer}”${over} in this text?`,
      selection: "",
      answer: "effect",
      heads: [],
    });
  }
  const { heads, here: inText } = blockOf(trace, base.block).roles;
  for (const [role, question] of FINDABLE) {
    const count = (inText ?? heads).flat().filter((part) => part.role === role).length;
    if (count === 0 || questions.length > 1) continue;
    questions.push({ question, selection: "word=", answer: role, heads: [] });
  }
  return questions;
}
