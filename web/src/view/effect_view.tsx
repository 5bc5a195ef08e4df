// Effect: the heads behind the prediction, or those that read two inputs differently; the edits.

import { useEffect, useState } from "preact/hooks";
import type { Progress } from "../data/backend.ts";
import { indexOfHead, type RankedHead } from "../data/effects.ts";
import { formatNumber, ordinal, probability, signed } from "../data/format.ts";
import { inText, printed } from "../data/tokens.ts";
import { inkOn } from "../paint/roles.ts";
import { cssOf } from "../paint/theme.ts";
import { headCode, headName } from "../state/selection.ts";
import type { Side } from "../state/session.ts";
import { Button, classes, Select, Swatch } from "./controls.tsx";
import { Edits } from "./edits_view.tsx";
import { ExercisePanel } from "./exercise_view.tsx";
import { useSession } from "./explorer_context.ts";
import { headDifferences, headEffects, isElsewhere } from "./head_values.ts";
import { predictedAt } from "./predictions.tsx";
import { drawnHeads, roleLookOf } from "./selected_head.ts";

export function EffectPane() {
  const session = useSession();
  const side = session.lead.value;
  const isWriter = side.base.predictions !== null;
  const busy = session.requests.busy.value !== "" || session.requests.progress.value !== null;
  const isHidden = session.exercise.isHidden.value;
  const isTwo = session.sides.value.length > 1;
  return (
    <section class={`effect ${busy ? "busy" : ""}`} aria-label="Effect">
      <div class="in">
        {session.exercise.asked.value && <ExercisePanel side={side} />}
        {!isHidden && (
          <>
            <PairRank side={side} />
            <Together side={side} />
            {isTwo && session.compared && <Differing side={side} />}
            <Ranking side={side} />
            {!isTwo && session.compared && <Differing side={side} />}
            {!isWriter && <WithoutHead side={side} />}
            <Edits side={side} />
          </>
        )}
      </div>
    </section>
  );
}

/** Effect on an encoder without predictions: change of its vector. */
function WithoutHead({ side }: { side: Side }) {
  const session = useSession();
  const selection = session.selection.value;
  const table = session.requests.effectsOf(side);
  const index = session.layerIndex(side.block);
  const effects = headEffects(session, side);
  const similarity = table?.kind === "cosine_distance" ? table.similarity : null;
  if (table?.kind !== "cosine_distance" || !effects || !similarity) return null;
  const after = similarity.after(index, selection.head);
  return (
    <>
      <h2 class="sec">Are A and B alike without {headName(selection)}?</h2>
      <div class="turn">
        <span>cosine of A and B</span>
        <span class="bars">
          <i style={{ width: `${100 * Math.max(0, similarity.before)}%` }} />
          <b style={{ width: `${100 * Math.max(0, after)}%` }} />
        </span>
        <span class="num">
          {similarity.before.toFixed(3)} → <b>{after.toFixed(3)}</b>
        </span>
      </div>
    </>
  );
}

/** Heads of a list: of one, and of each of two. */
const LISTED = 10;
const LISTED_EACH = 6;

function Ranking({ side }: { side: Side }) {
  const session = useSession();
  const effects = headEffects(session, side);
  const progress = session.requests.progress.value;
  const table = session.requests.effectsOf(side);
  const chosen = session.selection.value;
  const word = session.place(side, chosen.word, "query");
  const measured = table?.kind === "prediction" ? table.position : null;
  if (measured !== null && word !== null && isElsewhere(session, side)) {
    const text = inText(printed(side.block.queryTokens.texts[word]));
    return <Elsewhere side={side} word={text} position={word} measured={measured} />;
  }
  if (!effects) return <NotMeasured side={side} />;
  const isDistance = effects.kind === "cosine_distance";
  const rank = indexOfHead(effects.all, session.layerIndex(side.block), chosen.head) + 1;
  const name = table?.kind === "prediction" ? printed(table.candidates[effects.candidate]) : "";
  return (
    <>
      <h2 class="sec">
        {isDistance ? (
          "Heads that change the text's vector most"
        ) : (
          <>
            Heads behind <em dir="auto">{name}</em>
          </>
        )}
        {table?.kind === "prediction" && (
          <Against candidates={table.candidates} ranked={effects.candidate} />
        )}
      </h2>
      <p class="mut what">
        {isDistance
          ? `The model writes no words but one vector (${table?.kind === "cosine_distance" ? table.pooling : ""}). Here: its cosine distance without each head.`
          : effects.kind === "odds"
            ? `log-odds without each head in turn; with all heads ${signed(effects.now ?? 0)}`
            : `points of probability without each head in turn; with all ${probability(effects.now ?? 0)}`}
      </p>
      {progress && <Progressing {...progress} />}
      {!isDistance && (
        <div class="ends" aria-hidden="true">
          <span class="dn">◂ {name} falls</span>
          <span class="up">rises ▸</span>
        </div>
      )}
      <RankedHeads
        side={side}
        list={effects.all}
        format={effects.format}
        isSigned={!isDistance}
        hasSwitches={!isDistance && session.canSwitch(side)}
      />
      <p class="mut foot">
        {rank > 0 && `${headName(chosen)} is ${ordinal(rank)} of ${effects.all.length}. `}
        {!isDistance && "In this text only: hs.effects over several texts says whether it holds."}
      </p>
    </>
  );
}

interface ElsewhereProps {
  readonly side: Side;
  readonly word: string;
  readonly position: number;
  readonly measured: number;
}

/** Ranking of another word than the effects are about: by what the word reads. */
function Elsewhere({ side, word, position, measured }: ElsewhereProps) {
  const session = useSession();
  const progress = session.requests.progress.value;
  const spoken = side.base.blocks.at(-1)!;
  const isSame = side.baseFiltered.block.queryTokens === spoken.queryTokens;
  const about = printed(spoken.queryTokens.texts[measured] ?? "");
  const list = useReads(side, position, null);
  return (
    <>
      <h2 class="sec">
        Heads that read most for <em dir="auto">{word}</em>
      </h2>
      <p class="mut what">largest weight on one word, the first token aside</p>
      <RankedHeads side={side} list={list} />
      <div class="note">
        Effects were measured for the answer after “<bdi>{about}</bdi>”.
        <div class="do">
          <Button
            class="b"
            onClick={() =>
              session.update({ word: measured, ...(isSame ? {} : { block: spoken.name }) })
            }
          >
            Go to “{about}”
          </Button>
          {session.can.effects && isSame && !progress && (
            <Button class="b" onClick={() => session.measure(side, position)}>
              Measure for “{word}”
            </Button>
          )}
        </div>
      </div>
      {progress && <Progressing {...progress} />}
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
    <label class="against">
      {" "}
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
  /** Null while layers are unpacked. */
  readonly list: readonly RankedHead[] | null;
  readonly format?: (value: number) => string;
  readonly isSigned?: boolean;
  readonly hasSwitches?: boolean;
}

function RankedHeads(props: RankedProps) {
  const { side, list, format = formatNumber, isSigned = false, hasSwitches = false } = props;
  const session = useSession();
  if (!list) return <p class="mut">Unpacking all layers …</p>;
  const { block } = side;
  const chosen = indexOfHead(list, session.layerIndex(block), session.selection.value.head);
  const most = Math.max(1e-9, Math.abs(list[0]?.value ?? 0));
  const listed = session.compared || session.selection.value.key !== null ? LISTED_EACH : LISTED;
  const shown = list.slice(0, listed).map((ranked, place) => ({ ranked, place }));
  const drawn = session.overlaid ? drawnHeads(session, side) : [];
  const extra = [
    ...drawn.map(({ id }) => indexOfHead(list, block.layers.indexOf(id.layer), id.head)),
    chosen,
  ];
  for (const place of new Set(extra)) {
    if (place >= listed) shown.push({ ranked: list[place], place });
  }
  return (
    <div class={classes("ranking", hasSwitches && "switched")}>
      {shown.map(({ ranked, place }) => {
        const id = { layer: block.layers[ranked.layerIndex], head: ranked.head };
        const share = (ranked.value / most) * (isSigned ? 50 : 100);
        const left = isSigned ? `${50 + Math.min(0, share)}%` : 0;
        const isOff = session.edits.isOff(id);
        const letter = drawn.findIndex((head) => headCode(head.id) === headCode(id));
        return (
          <div
            key={headCode(id)}
            class={classes("rank-row", place === chosen && "on", place >= listed && "apart")}
          >
            <Button
              class={classes("rank", isOff && "is-off")}
              aria-current={place === chosen ? "true" : undefined}
              title={`${ordinal(place + 1)} of ${list.length}`}
              onClick={() => session.choose(id)}
            >
              {letter >= 0 ? (
                <span
                  class="sw"
                  style={{
                    background: cssOf(drawn[letter].color),
                    color: inkOn(drawn[letter].color),
                  }}
                >
                  {"abcdef"[letter]}
                </span>
              ) : (
                <Swatch look={roleLookOf(session, side, id)} />
              )}
              <span>{headName(id)}</span>
              <span class={classes("d", isSigned && "signed")}>
                <i
                  class={ranked.value >= 0 ? "up" : "down"}
                  style={{ left, width: `${Math.abs(share)}%` }}
                />
              </span>
              <span class="num">{format(ranked.value)}</span>
            </Button>
            {hasSwitches && (
              <button
                type="button"
                class="switch"
                role="switch"
                aria-checked={!isOff}
                aria-label={`${headName(id)} on`}
                title={isOff ? "Switch it on" : "Switch it off"}
                onClick={() => session.edits.toggleOff(id, session.can.off)}
              />
            )}
          </div>
        );
      })}
    </div>
  );
}

/** Several heads at once: their effects one by one, and switched off together. */
function Together({ side }: { side: Side }) {
  const session = useSession();
  const several = session.several;
  const effects = headEffects(session, side);
  if (!several) return null;
  const values = several.map(({ layer, head }) => {
    const index = effects ? indexOfHead(effects.all, side.block.layers.indexOf(layer), head) : -1;
    return effects?.all[index]?.value ?? Number.NaN;
  });
  const sum = values.reduce((total, value) => total + value, 0);
  const areOff = several.every((id) => session.edits.isOff(id));
  const { edits, block } = session.selection.value;
  return (
    <div class="note together">
      <b>{several.map(headName).join(" + ")}</b>
      {effects && Number.isFinite(sum) && (
        <p>
          One by one: {values.map(effects.format).join(", ")}
          {effects.kind !== "cosine_distance" && `; they add up to ${effects.format(sum)}`}.
        </p>
      )}
      {session.can.off ? (
        <div class="do">
          <Button
            class="b"
            onClick={() => {
              const rest = edits.filter((edit) => edit.kind !== "off" || edit.block !== block);
              const off = several.map(({ layer, head }) => ({
                kind: "off" as const,
                block,
                layer,
                head,
              }));
              session.update({ edits: areOff ? rest : [...rest, ...off] });
            }}
          >
            {areOff ? "Switch them on" : "Switch them off together"}
          </Button>
        </div>
      ) : (
        <p>Together is not the sum: that run needs the model (see Edits).</p>
      )}
    </div>
  );
}

/** Heads by how differently they read two inputs, or before and after an edit. */
function Differing({ side }: { side: Side }) {
  const session = useSession();
  const found = headDifferences(session);
  const { word } = session.selection.value;
  const text = word === null ? "" : printed(side.block.queryTokens.texts[word] ?? "");
  const isTwo = session.sides.value.length > 1;
  return (
    <>
      <h2 class="sec">
        Heads that read {isTwo ? "A and B differently" : "differently after the edit"}
      </h2>
      <p class="mut what">
        {word === null ? "all words" : `the row of “${text}”`}: 0 = the same weights, 1 = nothing in
        common
      </p>
      <RankedHeads side={side} list={found?.all ?? null} />
      <p class="mut foot">
        Reading differently does not show that the output depends on it: see Effect.
      </p>
    </>
  );
}

function NotMeasured({ side }: { side: Side }) {
  const session = useSession();
  const { effects: canMeasure } = session.can;
  const progress = session.requests.progress.value;
  const { block } = side;
  const count = block.layers.length * block.heads;
  const before = predictedAt(side.base, session.place(side, session.selection.value.word, "query"));
  return (
    <>
      <h2 class="sec">Does it matter?</h2>
      {progress && <Progressing {...progress} />}
      {!progress && canMeasure && (
        <div class="note">
          <b>Not measured yet.</b> The model runs once without each of its {count} heads.
          <div class="do">
            <Button class="go" onClick={() => session.measure(side, before?.position ?? null)}>
              Measure all heads
            </Button>
          </div>
        </div>
      )}
      {!progress && !canMeasure && (
        <div class="note">
          {session.header.live ? (
            <>
              <b>Not measured.</b> The model in this page measures them when it runs.
            </>
          ) : session.header.command ? (
            <>
              <b>Not measured.</b> Save the page with <code>effects=True</code>, in the shell{" "}
              <code>view --effects</code>, or measure them in the lab.
            </>
          ) : (
            <>
              <b>Not known.</b> This page was made from attention alone. Whether a head matters,
              only runs of its model can tell: <code>hs.effects(model, text)</code>.
            </>
          )}
        </div>
      )}
    </>
  );
}

function Progressing({ done, total }: Progress) {
  const session = useSession();
  return (
    <div class="progress">
      <progress max={total} value={done} aria-label="Heads measured" />
      <span class="num mut">
        {done} / {total}
      </span>
      <Button class="plain" onClick={() => session.requests.stop()}>
        stop
      </Button>
    </div>
  );
}

/** All heads by a weight of one row: of one key, or the largest off the first token. Null while
 *  layers are unpacked, or without a row. */
function useReads(side: Side, query: number | null, key: number | null) {
  const [list, setList] = useState<readonly RankedHead[] | null>(null);
  const { block } = side;
  useEffect(() => {
    setList(null);
    if (query === null) return;
    let isOld = false;
    const keys =
      key !== null
        ? [key]
        : block.keyTokens.texts.flatMap((_, i) => (i > 0 && !block.keyTokens.special[i] ? i : []));
    void Promise.all(block.planes.map((lazy) => lazy.whole())).then(
      (planes) => {
        if (isOld) return;
        const all: RankedHead[] = [];
        planes.forEach((layer, layerIndex) => {
          for (let head = 0; head < block.heads; head++) {
            if (!block.has(layerIndex, head)) continue;
            const row = layer.row(head, query);
            const value = keys.reduce((most, k) => Math.max(most, row[k] || 0), 0);
            all.push({ layerIndex, head, value });
          }
        });
        setList(all.sort((a, b) => b.value - a.value));
      },
      () => {},
    );
    return () => {
      isOld = true;
    };
  }, [block, query, key]);
  return list;
}

function PairRank({ side }: { side: Side }) {
  const session = useSession();
  const { word, key } = session.selection.value;
  const { block } = side;
  const [query, read] = [session.place(side, word, "query"), session.place(side, key, "key")];
  const list = useReads(side, read === null ? null : query, read);
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
      <RankedHeads side={side} list={list} />
    </>
  );
}
