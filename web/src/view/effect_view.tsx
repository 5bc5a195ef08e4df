// Effect: the prediction before and after, the edits, and the heads behind it.

import { useEffect, useState } from "preact/hooks";
import type { Progress } from "../data/backend.ts";
import { indexOfHead, type RankedHead } from "../data/effects.ts";
import { capital, formatNumber, ordinal } from "../data/format.ts";
import { printed } from "../data/tokens.ts";
import { headCode, headName } from "../state/selection.ts";
import type { Side } from "../state/session.ts";
import { Button, classes, Select, Swatch } from "./controls.tsx";
import { Edits } from "./edits_view.tsx";
import { useSession } from "./explorer_context.ts";
import { headEffects } from "./head_values.ts";
import { predictedAt } from "./predictions.tsx";
import { roleLookOf } from "./selected_head.ts";

export function EffectPane() {
  const session = useSession();
  const side = session.lead.value;
  const isWriter = side.base.predictions !== null;
  const busy = session.requests.busy.value !== "" || session.requests.progress.value !== null;
  return (
    <section class={`effect ${busy ? "busy" : ""}`} aria-label="Effect">
      <div class="in">
        {isWriter ? <BeforeAfter side={side} /> : <Turn side={side} />}
        {session.backend && <Edits side={side} />}
        <PairRank side={side} />
        <Ranking side={side} />
        {!session.backend && <Edits side={side} />}
      </div>
    </section>
  );
}

function BeforeAfter({ side }: { side: Side }) {
  const session = useSession();
  const { word } = session.selection.value;
  const position = session.place(side, word, "query");
  const before = predictedAt(side.base, position);
  const after = side.now === side.base ? null : predictedAt(side.now, position);
  if (!before) return null;
  const chance = new Map(after?.top.map(({ text, probability }) => [text, probability]));
  const shown = before.top.slice(0, 6);
  const most = Math.max(
    0.01,
    ...[...shown, ...(after?.top ?? [])].map((answer) => answer.probability),
  );
  const effects = headEffects(session, side);
  const table = session.requests.effectsOf(side);
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
            session.backend && (session.selection.value.edits.length ? "…" : "no edits yet")
          )}
        </small>
      </h2>
      <div class="answers">
        {shown.map(({ text, probability }) => {
          const now = chance.get(text);
          const candidate = table?.kind === "prediction" ? table.candidates.indexOf(text) : -1;
          const isRanked = text === ranked;
          return (
            <Button
              key={text}
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
            </Button>
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

/** Effect on an encoder without predictions: rotation of its vector. */
function Turn({ side }: { side: Side }) {
  const session = useSession();
  const selection = session.selection.value;
  const table = session.requests.effectsOf(side);
  const index = session.layerIndex(side.block);
  const effects = headEffects(session, side);
  if (table?.kind !== "cosine_distance" || !effects) {
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
  const distance = table.distance(index, selection.head);
  const most = Math.abs(effects.all[0]?.value ?? 1) || 1;
  const place = indexOfHead(effects.all, index, selection.head);
  const { similarity } = table;
  return (
    <>
      <h2 class="sec">Without {headName(selection)}</h2>
      <p class="mut">
        This model writes no words. What it makes is one vector for the text ({table.pooling}); this
        is how that changes.
      </p>
      {similarity && (
        <div class="turn">
          <span>A is like B</span>
          <span class="bars">
            <i style={{ width: `${100 * Math.max(0, similarity.before)}%` }} />
            <b
              style={{ width: `${100 * Math.max(0, similarity.after(index, selection.head))}%` }}
            />
          </span>
          <span class="num">
            {similarity.before.toFixed(3)} →{" "}
            <b>{similarity.after(index, selection.head).toFixed(3)}</b>
          </span>
        </div>
      )}
      <div class="turn">
        <span>cosine distance</span>
        <span class="bars single">
          <i style={{ width: `${(100 * Math.abs(distance)) / most}%` }} />
        </span>
        <span class="num">
          <b>{distance.toFixed(3)}</b>{" "}
          <span class="mut">
            {ordinal(place + 1)} of {effects.all.length}
          </span>
        </span>
      </div>
    </>
  );
}

const LISTED = 8;

function Ranking({ side }: { side: Side }) {
  const session = useSession();
  const effects = headEffects(session, side);
  const progress = session.requests.progress.value;
  if (!effects) return <NotMeasured side={side} />;
  const isDistance = effects.kind === "cosine_distance";
  const chosen = session.selection.value;
  const rank = indexOfHead(effects.all, session.layerIndex(side.block), chosen.head) + 1;
  const table = session.requests.effectsOf(side);
  const measured = table?.kind === "prediction" ? table.position : null;
  const shown = predictedAt(side.base, session.place(side, chosen.word, "query"));
  const isElsewhere = measured !== null && shown?.position != null && shown.position !== measured;
  const where = isElsewhere ? printed(side.block.queryTokens.texts[measured] ?? "") : "";
  return (
    <>
      <h2 class="sec">
        {isDistance ? "Heads that move it most" : `Heads behind ${effects.what}`}{" "}
        <small>
          {where && (
            <>
              after “<bdi>{where}</bdi>” ·{" "}
            </>
          )}
          {session.backend ? "each off alone" : "stored"}
        </small>
      </h2>
      {isElsewhere && session.backend && !progress && (
        <Button
          class="plain"
          onClick={() => void session.requests.measure(side.trace, shown.position)}
        >
          Measure them for the word after “{shown.word}”
        </Button>
      )}
      {progress && <Progressing {...progress} />}
      {table?.kind === "prediction" && (
        <Against candidates={table.candidates} ranked={effects.candidate} />
      )}
      {!isDistance && (
        <div class="ends mut" aria-hidden="true">
          <span>◂ falls</span>
          <span>rises ▸</span>
        </div>
      )}
      <RankedHeads side={side} list={effects.all} format={effects.format} isSigned={!isDistance} />
      <p class="mut foot">
        {isDistance
          ? "1 − cosine between the text's vector with and without the head"
          : `${effects.kind === "odds" ? "log-odds" : "points"} of ${effects.what} gained or lost when the head is off`}
        {!isDistance &&
          rank > 0 &&
          `; ${headName(chosen)} is ${ordinal(rank)} of ${effects.all.length}`}
      </p>
    </>
  );
}

/** Choice of the contrasted answer. Without one, heads that raise every answer rank first. */
function Against({ candidates, ranked }: { candidates: readonly string[]; ranked: number }) {
  const session = useSession();
  const { against } = session.selection.value;
  const others = candidates.filter((_, index) => index !== ranked).map((text) => text.trim());
  if (!others.length) return null;
  return (
    <label class="against mut">
      over{" "}
      <Select
        value={others.includes(against.trim()) ? against.trim() : ""}
        options={[
          ["", "all other answers"],
          ...others.map((text) => [text, printed(text)] as const),
        ]}
        choose={(text) => session.update({ against: text })}
      />
    </label>
  );
}

interface RankedProps {
  readonly side: Side;
  readonly list: readonly RankedHead[];
  readonly format: (value: number) => string;
  readonly isSigned: boolean;
}

function RankedHeads({ side, list, format, isSigned }: RankedProps) {
  const session = useSession();
  const chosen = indexOfHead(list, session.layerIndex(side.block), session.selection.value.head);
  const most = Math.max(1e-9, Math.abs(list[0]?.value ?? 0));
  const shown = list.slice(0, LISTED).map((ranked, place) => ({ one: ranked, place }));
  if (chosen >= LISTED) shown.push({ one: list[chosen], place: chosen });
  return (
    <div class="ranking">
      {shown.map(({ one: ranked, place }) => {
        const id = { layer: side.block.layers[ranked.layerIndex], head: ranked.head };
        const share = (ranked.value / most) * (isSigned ? 50 : 100);
        const left = isSigned ? `${50 + Math.min(0, share)}%` : 0;
        return (
          <Button
            key={headCode(id)}
            class={classes("rank", place === chosen && "on", place >= LISTED && "apart")}
            aria-current={place === chosen ? "true" : undefined}
            title={`${ordinal(place + 1)} of ${list.length}`}
            onClick={() => session.choose(id)}
          >
            <Swatch look={roleLookOf(session, side, id)} />
            <span>{headName(id)}</span>
            <span class={classes("d", isSigned && "signed")}>
              <i
                class={ranked.value >= 0 ? "up" : "down"}
                style={{ left, width: `${Math.abs(share)}%` }}
              />
            </span>
            <span class="num">{format(ranked.value)}</span>
          </Button>
        );
      })}
    </div>
  );
}

function NotMeasured({ side }: { side: Side }) {
  const session = useSession();
  const { backend } = session;
  const progress = session.requests.progress.value;
  const { block } = side;
  const count = block.layers.length * block.heads;
  const before = predictedAt(side.base, session.place(side, session.selection.value.word, "query"));
  return (
    <>
      <h2 class="sec">Which heads matter</h2>
      {progress && <Progressing {...progress} />}
      {!progress && backend && (
        <div class="note">
          <b>Not measured yet.</b> The model runs once without each of its {count} heads.
          <div class="do">
            <Button
              class="go"
              onClick={() => void session.requests.measure(side.trace, before?.position ?? null)}
            >
              Measure all heads
            </Button>
          </div>
        </div>
      )}
      {!progress && !backend && (
        <div class="note">
          <b>Not measured.</b> Save the page with <code>effects=True</code>, in the shell{" "}
          <code>view --effects</code>, or measure them in the lab.
        </div>
      )}
    </>
  );
}

function Progressing({ done, total }: Progress) {
  return (
    <div class="progress">
      <progress max={total} value={done} aria-label="Heads measured" />
      <span class="num mut">
        {done} / {total}
      </span>
    </div>
  );
}

function PairRank({ side }: { side: Side }) {
  const session = useSession();
  const { word, key } = session.selection.value;
  const [list, setList] = useState<readonly RankedHead[] | null>(null);
  const { block } = side;
  const [query, read] = [session.place(side, word, "query"), session.place(side, key, "key")];
  useEffect(() => {
    setList(null);
    if (query === null || read === null) return;
    let isOld = false;
    void Promise.all(block.planes.map((lazy) => lazy.whole())).then(
      (planes) => {
        if (isOld) return;
        const all: RankedHead[] = [];
        planes.forEach((layer, layerIndex) => {
          for (let head = 0; head < block.heads; head++) {
            const value = layer.weight(head, query, read);
            if (block.has(layerIndex, head) && value >= 0) all.push({ layerIndex, head, value });
          }
        });
        setList(all.sort((a, b) => b.value - a.value));
      },
      () => {},
    );
    return () => {
      isOld = true;
    };
  }, [block, query, read]);
  if (query === null || read === null) return null;
  const names = [block.queryTokens.texts[query], block.keyTokens.texts[read]].map(printed);
  return (
    <>
      <h2 class="sec">
        Heads by {names[0]} → {names[1]}{" "}
        <small>
          <Button class="plain" onClick={() => session.update({ key: null })}>
            unpin
          </Button>
        </small>
      </h2>
      {list ? (
        <RankedHeads side={side} list={list} format={formatNumber} isSigned={false} />
      ) : (
        <p class="mut">Unpacking all layers …</p>
      )}
    </>
  );
}
