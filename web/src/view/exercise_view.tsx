// Exercise: a question, a guess by clicking a head, the measured answer and a score.

import { indexOfHead } from "../data/effects.ts";
import { shortWeight } from "../data/format.ts";
import { roleLook } from "../paint/roles.ts";
import { FULL_SCORE, scoreOf } from "../state/exercise.ts";
import { type HeadId, headName, isSameHead, parseHead } from "../state/selection.ts";
import type { Session, Side } from "../state/session.ts";
import { Button, CopyButton, pointing } from "./controls.tsx";
import { useSession } from "./explorer_context.ts";
import { headEffects } from "./head_values.ts";
import { readBy } from "./story.tsx";

interface Solution {
  readonly best: HeadId;
  readonly score: number;
  /** Sentences about the guess and about the answer. */
  readonly said: string;
}

/** Answer to the question on the page, and the score of a guess; null without data. */
export function solve(session: Session, side: Side, guess: HeadId | null): Solution | null {
  const asked = session.exercise.asked.value;
  const { block } = side;
  if (!asked) return null;
  if (asked.answer === "effect") {
    const effects = headEffects(session, side);
    const first = effects?.all[0];
    if (!effects || !first) return null;
    const best = { layer: block.layers[first.layerIndex], head: first.head };
    const own =
      guess && effects.all[indexOfHead(effects.all, block.layers.indexOf(guess.layer), guess.head)];
    const value = own?.value ?? 0;
    const change = (amount: number) => `${effects.format(amount)} ${effects.unit}`.trim();
    const way =
      Math.sign(value) === Math.sign(first.value) ? "in the same direction" : "the other way";
    const isBest = guess && isSameHead(guess, best);
    const mostRead = readBy(session, best);
    const read = mostRead ? `; it reads “${mostRead.text}” ${shortWeight(mostRead.weight)}` : "";
    const answer = `Without ${headName(best)}, ${effects.what} changes most: ${change(first.value)}${read}.`;
    const said =
      !guess || isBest ? answer : `Without ${headName(guess)}: ${change(value)}, ${way}. ${answer}`;
    return { best, said, score: own ? scoreOf(value, first.value) : 0 };
  }
  const roles = side.baseFiltered.block.roles;
  const ofRole = (roles.here ?? roles.heads).flatMap((row, layerIndex) =>
    row.flatMap(({ role, share }, head) =>
      role === asked.answer ? { layer: block.layers[layerIndex], head, share: share ?? 0 } : [],
    ),
  );
  const right: readonly HeadId[] =
    asked.answer === "heads"
      ? asked.heads.flatMap((code) => parseHead(code) ?? [])
      : ofRole.sort((a, b) => b.share - a.share);
  if (!right[0]) return null;
  const best = { layer: right[0].layer, head: right[0].head };
  const isRight = guess !== null && right.some((id) => isSameHead(id, guess));
  const listed = isRight ? right.filter((id) => !isSameHead(id, guess)) : right;
  const names = listed.slice(0, 4).map(headName);
  const list = `${names.join(", ")}${listed.length > 4 ? ` and ${listed.length - 4} more` : ""}`;
  const what = asked.answer === "heads" ? "" : ` (${roleLook(asked.answer).name})`;
  const said = isRight
    ? `${headName(guess)} is right${what}.${listed.length > 0 ? ` So ${listed.length > 1 ? "are" : "is"} ${list}.` : ""}`
    : `${guess ? `Not ${headName(guess)}. ` : ""}It is ${list}${what}.`;
  return { best, said, score: isRight ? FULL_SCORE : 0 };
}

/** Bar at the bottom: the guess, the answer, the score. */
export function ExerciseBar() {
  const session = useSession();
  const { exercise } = session;
  const asked = exercise.asked.value;
  if (!asked) return null;
  const side = session.lead.value;
  const guess = exercise.guess.value;
  const solution = solve(session, side, guess);
  const isRevealed = exercise.isRevealed.value;
  const number = session.selection.value.exercise;
  const { questions } = exercise;
  const total = [...exercise.scores.value.values()].reduce((sum, score) => sum + score, 0);
  const reveal = () => {
    if (!solution) return;
    exercise.reveal(solution.score);
    session.update({ ...solution.best, color: asked.answer === "effect" ? "effect" : "role" });
  };
  const isLast = number === questions.length;
  return (
    <footer class="story turn-bar">
      <span class="n num">
        {isRevealed && guess && solution ? (
          <b class="score">
            {solution.score} / {FULL_SCORE}
          </b>
        ) : (
          `${number} of ${questions.length}`
        )}
      </span>
      <p aria-live="polite">
        {isRevealed
          ? (solution?.said ?? "The page does not have the answer.")
          : guess
            ? `Your guess: ${headName(guess)}. Choose another head to change it.`
            : pointing(session) === "Tap"
              ? "Tap a head to see what it reads, and to guess it."
              : "Hover heads to see what they read; click one to guess it."}
      </p>
      {exercise.scores.value.size > 0 && (
        <span class="mut num">
          score {total} of {FULL_SCORE * exercise.scores.value.size}
        </span>
      )}
      {!isRevealed && !guess && (
        <Button class="b" onClick={reveal}>
          Show me
        </Button>
      )}
      {!isRevealed && guess && (
        <Button class="go" onClick={reveal}>
          Show the answer
        </Button>
      )}
      {isRevealed && (
        <>
          <Button class="b" onClick={() => exercise.open(number)}>
            Again
          </Button>
          {!isLast && (
            <Button class="go" onClick={() => exercise.open(number + 1)}>
              Next ▸
            </Button>
          )}
        </>
      )}
      <CopyButton key={number} text={() => exerciseLink(number)} label="Copy link" />
      <Button class={isRevealed && isLast ? "go" : "b"} onClick={() => exercise.open(0)}>
        {isRevealed && isLast ? "Done" : "Leave"}
      </Button>
    </footer>
  );
}

/** Address of this page with the question and nothing that would give the answer away. */
function exerciseLink(number: number): string {
  return `${location.href.split("#")[0]}#ex=${number}`;
}

/** Beside the heads: what counts, and what is hidden. */
export function ExercisePanel({ side }: { side: Side }) {
  const session = useSession();
  const asked = session.exercise.asked.value;
  if (!asked || !session.exercise.isHidden.value) return null;
  const effects = headEffects(session, side);
  return (
    <>
      <h2 class="sec">Your turn</h2>
      <p>{asked.question}</p>
      <p class="mut">
        {asked.answer === "effect"
          ? `Score: ${FULL_SCORE} for the head that changes most, 2 from half of it, 1 from a fifth, all in the same direction; else 0.`
          : `Score: ${FULL_SCORE} for a head that does it, else 0.`}
      </p>
      <div class="note">
        {asked.answer === "effect" && effects
          ? `How it was measured: each of the ${effects.all.length} heads was switched off alone, and the model read this text again.`
          : "How it was measured: by where the heads' attention goes in this text."}
      </div>
      <p class="mut">Roles, colors and effects come back with the answer.</p>
    </>
  );
}
