// So what: the prediction before and after, the edits, and the heads behind it.

import { printed } from "../data/axis.ts";
import { placeIn } from "../data/effects.ts";
import { capital, ordinal } from "../data/words.ts";
import { headName } from "../state/selection.ts";
import type { Side } from "../state/session.ts";
import { useSession } from "./context.ts";
import { Edits } from "./edits.tsx";
import { headEffects } from "./effect_numbers.ts";
import { predictedAt } from "./predictions.tsx";
import { PairRank, Ranking } from "./ranking.tsx";

export function EffectPane() {
  const session = useSession();
  const side = session.lead.value;
  const isWriter = side.base.predictions !== null;
  const busy = session.busy.value !== "" || session.progress.value !== null;
  return (
    <section class={`effect ${busy ? "busy" : ""}`} aria-label="Effect">
      <div class="in">
        {isWriter ? <BeforeAfter side={side} /> : <Turn side={side} />}
        {session.asker && <Edits side={side} />}
        <PairRank side={side} />
        <Ranking side={side} />
        {!session.asker && <Edits side={side} />}
      </div>
    </section>
  );
}

function BeforeAfter({ side }: { side: Side }) {
  const session = useSession();
  const { word } = session.selection.value;
  const at = session.place(side, word, "query");
  const before = predictedAt(side.base, at);
  const after = side.now === side.base ? null : predictedAt(side.now, at);
  if (!before) return null;
  const chance = new Map(after?.top.map(({ text, probability }) => [text, probability]));
  const shown = before.top.slice(0, 6);
  const most = Math.max(0.01, ...[...shown, ...(after?.top ?? [])].map((one) => one.probability));
  const effects = headEffects(session, side);
  const table = session.effectsOf(side);
  const ranked =
    table?.kind === "prediction" && effects ? table.candidates[effects.candidate] : null;
  const moved = before.top.reduce(
    (sum, { text, probability }) =>
      sum + Math.abs((chance.get(text) ?? probability) - probability) / 2,
    0,
  );
  const where = before.title.startsWith("next") ? "after" : "at";
  const title = capital(before.title) + (before.word ? ` ${where} “${before.word}”` : "");
  return (
    <>
      <h2 class="sec">
        {title}{" "}
        <small>
          {after ? (
            <>
              before <i class="key before" /> → after <i class="key after" />
            </>
          ) : (
            session.asker && (session.selection.value.edits.length ? "…" : "no edits yet")
          )}
        </small>
      </h2>
      <div class="answers">
        {shown.map(({ text, probability }) => {
          const now = chance.get(text);
          const candidate = table?.kind === "prediction" ? table.candidates.indexOf(text) : -1;
          const isRanked = text === ranked;
          return (
            <button
              key={text}
              type="button"
              class={`pb ${isRanked ? "tg" : ""}`}
              disabled={candidate < 0}
              aria-pressed={isRanked}
              title={candidate >= 0 ? `Rank heads by what they do to “${printed(text)}”` : ""}
              onClick={() => {
                session.candidate.value = candidate;
              }}
            >
              <span class="t" dir="auto">
                {printed(text)}
              </span>
              <span class={`bars ${after ? "" : "single"}`}>
                <i style={{ width: `${(100 * probability) / most}%` }} />
                {now !== undefined && <b style={{ width: `${(100 * now) / most}%` }} />}
              </span>
              <span class="v num">
                {after ? (
                  <>
                    {(100 * probability).toFixed(1)} →{" "}
                    <b class={now === undefined ? "" : now >= probability ? "up" : "dn"}>
                      {now === undefined ? "less" : `${(100 * now).toFixed(1)} %`}
                    </b>
                  </>
                ) : (
                  <b>{(100 * probability).toFixed(1)} %</b>
                )}
              </span>
            </button>
          );
        })}
      </div>
      {after && (
        <p class="mut">
          At least <b class="num">{(100 * moved).toFixed(1)} %</b> of the probability moved to other
          words.
        </p>
      )}
    </>
  );
}

/** A plain encoder writes no words: its vector turns. */
function Turn({ side }: { side: Side }) {
  const session = useSession();
  const selection = session.selection.value;
  const table = session.effectsOf(side);
  const index = session.layerIndex(side.block);
  const effects = headEffects(session, side);
  if (table?.kind !== "turn" || !effects) {
    return (
      <>
        <h2 class="sec">Without {headName(selection)}</h2>
        <p class="mut">
          This model writes no words. What it makes is one vector for the text; an effect is how far
          that vector turns.
        </p>
      </>
    );
  }
  const turn = table.turn(index, selection.head);
  const most = Math.abs(effects.all[0]?.value ?? 1) || 1;
  const place = placeIn(effects.all, index, selection.head);
  const { likeness } = table;
  return (
    <>
      <h2 class="sec">Without {headName(selection)}</h2>
      <p class="mut">
        This model writes no words. What it makes is one vector for the text ({table.pooling}); this
        is how that changes.
      </p>
      {likeness && (
        <div class="turn">
          <span>A is like B</span>
          <span class="bars">
            <i style={{ width: `${100 * Math.max(0, likeness.before)}%` }} />
            <b style={{ width: `${100 * Math.max(0, likeness.after(index, selection.head))}%` }} />
          </span>
          <span class="num">
            {likeness.before.toFixed(3)} → <b>{likeness.after(index, selection.head).toFixed(3)}</b>
          </span>
        </div>
      )}
      <div class="turn">
        <span>vector turns by</span>
        <span class="bars single">
          <i style={{ width: `${(100 * Math.abs(turn)) / most}%` }} />
        </span>
        <span class="num">
          <b>{turn.toFixed(3)}</b>{" "}
          <span class="mut">
            {ordinal(place + 1)} of {effects.all.length}
          </span>
        </span>
      </div>
    </>
  );
}
