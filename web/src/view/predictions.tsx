// The model's answer: a question above the text, the predicted word, and the other answers.

import type { Answer } from "../../generated/payload.ts";
import { probability } from "../data/format.ts";
import { inText, named, printed } from "../data/tokens.ts";
import type { Trace } from "../data/trace.ts";
import { headName } from "../state/selection.ts";
import type { Session, Side } from "../state/session.ts";
import { Button, classes, Select } from "./controls.tsx";
import { useSession } from "./explorer_context.ts";
import { headEffects } from "./head_values.ts";

interface Predicted {
  readonly kind: "next" | "mask" | "label";
  readonly position: number | null;
  readonly top: readonly Answer[];
  /** Word before or at the prediction; empty for the whole text. */
  readonly word: string;
  /** Whether it follows the whole text. */
  readonly isLast: boolean;
}

/** Prediction at the pinned word; without one, or for masks and labels, the last. Null for a word
 *  whose next word is not stored. */
export function predictedAt(trace: Trace, word: number | null): Predicted | null {
  const { predictions } = trace;
  if (!predictions || predictions.positions.length === 0) return null;
  const { kind, positions } = predictions;
  const pinned = positions.find(({ position }) => position !== null && position === word);
  if (kind === "next" && word !== null && !pinned) return null;
  const { position, top } = pinned ?? positions[positions.length - 1];
  const tokens = trace.blocks.at(-1)!.queryTokens;
  const text = position === null ? "" : inText(printed(tokens.texts[position] ?? ""));
  const isLast = kind === "next" && position === tokens.texts.length - 1;
  return { kind, position, top, word: text, isLast };
}

/** Prediction at the pinned word before and after the edits. A saved file has the runs without
 *  one head, for the answers that were measured. */
export function beforeAfter(
  session: Session,
  side: Side,
): { before: Predicted; after: ReadonlyMap<string, number> | null } | null {
  const position = session.place(side, session.selection.value.word, "query");
  // Predictions are about the tokens of the last block: an image tower has none.
  const isSpoken = side.baseFiltered.block.queryTokens === side.base.blocks.at(-1)!.queryTokens;
  const before = isSpoken ? predictedAt(side.base, position) : null;
  if (!before) return null;
  const mapOf = (top: readonly Answer[]) => new Map(top.map((a) => [a.text, a.probability]));
  const edited = side.now === side.base ? null : predictedAt(side.now, position);
  if (edited) return { before, after: mapOf(edited.top) };
  const table = session.requests.effectsOf(side);
  const off = session.can.off ? null : session.edits.onlyOff;
  if (!off || table?.kind !== "prediction" || table.position !== before.position) {
    return { before, after: null };
  }
  const layerIndex = side.block.layers.indexOf(off.layer);
  const without = (i: number) => table.without(layerIndex, off.head, i);
  return { before, after: new Map(table.candidates.map((text, i) => [text, without(i)])) };
}

/** Name of a model in a sentence: without size and version. */
export function shortModel(model: string): string {
  const name = model.split("/").at(-1)!;
  return name.replace(/-(\d|L\d|v\d|base|small|large|tiny)\S*$/i, "") || model;
}

/** Probability of the `k` first answers under a temperature; null outside them. */
export function sampled(top: readonly Answer[], temperature: number, k: number): (number | null)[] {
  if (temperature === 1 && k === 0) return top.map((answer) => answer.probability);
  const count = k || top.length;
  const powers = top.slice(0, count).map((answer) => answer.probability ** (1 / temperature));
  const sum = powers.reduce((total, power) => total + power, 0);
  return top.map((_, i) => (i < count ? powers[i] / sum : null));
}

/** Question that the whole page is about. */
export function Question() {
  const session = useSession();
  const asked = session.exercise.asked.value;
  const sides = session.sides.value;
  const side = session.lead.value;
  const name = shortModel(side.base.model);
  if (asked) {
    return (
      <>
        <b>Your turn.</b> {asked.question}
      </>
    );
  }
  if (sides.length > 1) return <>{comparison(sides, name)}</>;
  const predicted = beforeAfter(session, side)?.before;
  if (predicted) {
    const verb = predicted.kind === "mask" ? "fills in" : "says";
    const lead =
      predicted.kind === "next" && !predicted.isLast ? `After “${predicted.word}”, ` : "";
    return (
      <>
        {lead}
        {name} {verb}{" "}
        {predicted.isLast ? <b>{quoted(predicted.top[0].text)}</b> : <Ghost side={side} />}. Why?
      </>
    );
  }
  const { word } = session.selection.value;
  const { texts, pieces } = side.block.queryTokens;
  const kind = pieces[word ?? -1]?.kind;
  const head = headName(session.selection.value);
  return (
    <>
      What does {head} {session.header.command && `of ${name} `}
      {kind === "patch" ? "look at" : "read"}
      {word !== null && (
        <>
          {" "}
          for <b dir="auto">{named({ kind, label: texts[word] ?? "" })}</b>
          {texts.length > 64 && `, token ${word + 1} of ${texts.length}`}
        </>
      )}
      ?
    </>
  );
}

/** Answer in the question, in quotes if it has no letter or digit. */
function quoted(answer: string): string {
  const text = printed(answer);
  return /[\p{L}\p{N}]/u.test(text) ? text : `“${text}”`;
}

function comparison(sides: readonly Side[], name: string): string {
  const [a, b] = sides.map(({ block }) => block.queryTokens.texts);
  const changed = sides.find(({ base }) => base.changed)?.base.changed;
  if (changed) return `B is the model ${changed}. Which heads read differently?`;
  const apart = a.length === b.length ? a.filter((text, i) => text !== b[i]).length : -1;
  if (apart === 1) return `One word differs. Which heads of ${name} notice?`;
  return apart === 0
    ? `The same text twice. Which heads of ${name} read it differently?`
    : `Two texts. Which heads of ${name} read them differently?`;
}

/** Predicted word, dashed; a click lists the other answers. */
export function Ghost({ side }: { side: Side }) {
  const session = useSession();
  const found = beforeAfter(session, side);
  if (!found) return null;
  const { before, after } = found;
  const { answers } = session.selection.value;
  // Effects are ranked by this answer; the ghost shows it, so that both are about one word.
  const effects = headEffects(session, side);
  const table = session.requests.effectsOf(side);
  const ranked =
    table?.kind === "prediction" && table.position === before.position && effects
      ? before.top.find(({ text }) => text === table.candidates[effects.candidate])
      : undefined;
  const shown = ranked ?? before.top[0];
  const now = after?.get(shown.text);
  const isFirst = session.sides.value[0] === side;
  return (
    <span class="anchor answer">
      <Button
        class="ghost"
        aria-haspopup="dialog"
        aria-expanded={answers && isFirst}
        title="The model's answer. Click: other answers."
        onClick={() => session.update({ answers: !answers })}
      >
        <bdi>{printed(shown.text)}</bdi>{" "}
        <small class="num">
          {after ? (
            <>
              {bare(shown.probability)} →{" "}
              <b class={now === undefined ? "" : now >= shown.probability ? "up" : "dn"}>
                {now === undefined ? "less" : probability(now)}{" "}
                {now === undefined ? "" : now >= shown.probability ? "▲" : "▼"}
              </b>
            </>
          ) : (
            probability(shown.probability)
          )}
        </small>
      </Button>
      {answers && isFirst && <Answers side={side} />}
    </span>
  );
}

function bare(value: number): string {
  return probability(value).replace(" %", "");
}

const SHOWN = 7;

/** Answers with their probabilities; one of them is chosen to rank heads by. */
function Answers({ side }: { side: Side }) {
  const session = useSession();
  const found = beforeAfter(session, side);
  if (!found) return null;
  const { before, after } = found;
  const { temperature, k } = session.sampling.value;
  const table = session.requests.effectsOf(side);
  const effects = headEffects(session, side);
  const ranked =
    table?.kind === "prediction" && effects ? table.candidates[effects.candidate] : null;
  const isPlain = temperature === 1 && k === 0;
  const shown = before.top.slice(0, SHOWN);
  const shares = sampled(before.top, temperature, k);
  const most = Math.max(0.01, ...shares.map((share) => share ?? 0), ...(after?.values() ?? []));
  const sample = (changes: Partial<{ temperature: number; k: number }>) => {
    const next = { temperature, k, ...changes };
    // Only the first answers are stored: another temperature needs a limit to be exact.
    if (next.temperature !== 1 && next.k === 0) next.k = before.top.length;
    session.sampling.value = next;
  };
  return (
    <div class="pop answers" role="dialog" aria-label="Answers of the model">
      {shown.map(({ text, probability: value }, i) => {
        const now = after?.get(text);
        const share = shares[i];
        const candidate = table?.kind === "prediction" ? table.candidates.indexOf(text) : -1;
        return (
          <Button
            key={text}
            class={classes("pb", text === ranked && "tg")}
            disabled={candidate < 0}
            aria-pressed={text === ranked}
            title={candidate >= 0 ? "Rank heads by this answer" : ""}
            onClick={() => {
              session.candidate.value = candidate;
            }}
          >
            <span class="t" dir="auto">
              {printed(text)}
            </span>
            <span class={`bars ${after ? "" : "single"}`}>
              <i style={{ width: `${(100 * (share ?? 0)) / most}%` }} />
              {now !== undefined && <b style={{ width: `${(100 * now) / most}%` }} />}
            </span>
            <span class="v num">
              {share === null ? "left out" : after && isPlain ? `${bare(value)} → ` : ""}
              {after && isPlain ? (
                <b class={now === undefined ? "" : now >= value ? "up" : "dn"}>
                  {now === undefined ? "less" : probability(now)}
                </b>
              ) : (
                share !== null && <b>{probability(share)}</b>
              )}
            </span>
          </Button>
        );
      })}
      {before.kind !== "label" && (
        <div class="sampling">
          <label>
            <span>temperature</span>
            <input
              type="range"
              min="0.1"
              max="2"
              step="0.1"
              value={temperature}
              onInput={(event) => sample({ temperature: Number(event.currentTarget.value) })}
            />
            <b class="num">{temperature.toFixed(1)}</b>
          </label>
          <label>
            <span>choose among</span>
            <Select
              label="Number of answers to choose among"
              value={String(k)}
              options={[
                ...(temperature === 1 ? ([["0", "all words"]] as const) : []),
                ...[...new Set([1, 3, 5, before.top.length])]
                  .filter((n) => n <= before.top.length)
                  .map((n) => [String(n), `the first ${n}`] as const),
              ]}
              choose={(value) => sample({ k: Number(value) })}
            />
          </label>
          {!isPlain && <p class="mut">Effects stay those of the model's own probabilities.</p>}
        </div>
      )}
    </div>
  );
}
