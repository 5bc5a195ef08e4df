// Story and tour: a step dims the page, rings what it is about, and has its caption beside it.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { indexOfHead } from "../data/effects.ts";
import { rowWeights } from "../data/filtered_block.ts";
import { ordinal, probability, shortWeight } from "../data/format.ts";
import { summary } from "../data/head_summary.ts";
import { named, printed, rowOf } from "../data/tokens.ts";
import { type HeadId, headName } from "../state/selection.ts";
import type { Session } from "../state/session.ts";
import type { Numbers, Step, Target } from "../state/tour.ts";
import { Button, px } from "./controls.tsx";
import { useExplorer, useSession } from "./explorer_context.ts";
import { headEffects } from "./head_values.ts";
import { beforeAfter } from "./predictions.tsx";

/** Go to a step of the story; after the last one it closes. */
export function goTo(session: Session, step: number): void {
  const { story } = session.store;
  if (step < 1 || step > story.length) {
    session.update({ story: step > story.length ? -1 : 0, answers: false, edits: [] });
    return;
  }
  const { selection } = story[step - 1];
  session.store.open(selection, {
    ...{ story: step, exercise: 0 },
    ...paneOf(session, story[step - 1]),
  });
}

const PANES: Record<Target, number> = {
  grid: 1,
  sentence: 2,
  answer: 2,
  head: 2,
  evidence: 2,
  effect: 3,
};

/** Pane or tab that a step is about, on smaller screens. */
function paneOf(session: Session, { selection, target }: Step): { pane?: number; tab?: "effect" } {
  const fields = new URLSearchParams(selection);
  const layout = session.layout.peek();
  if (layout === "phone") return fields.has("pane") ? {} : { pane: PANES[target] };
  return layout === "middle" && target === "effect" ? { tab: "effect" } : {};
}

export function StoryBar() {
  const session = useSession();
  const { story } = session.store;
  const { story: step } = session.selection.value;
  if (story.length === 0 || step !== 0 || session.exercise.asked.value) return null;
  return (
    <footer class="story">
      <span class="n">Tour</span>
      <p>What did the model read, which head read it, and does it matter?</p>
      <Button onClick={() => session.update({ story: -1 })}>Skip</Button>
      <Button class="go" onClick={() => goTo(session, 1)}>
        Start, {story.length} {story.length > 1 ? "steps" : "step"} ▸
      </Button>
    </footer>
  );
}

/** Elements of each target, the first that is on the page. */
const ELEMENTS: Record<Target, readonly string[]> = {
  answer: [".answer", ".panes .effect", ".question"],
  sentence: [".flows"],
  grid: [".panes .heads", ".flows"],
  head: [".panes .head", ".flows"],
  evidence: [".panes .head", ".flows"],
  effect: [".panes .effect", ".panes .heads", ".flows"],
};

const CARD = 330;
const AWAY = 14;

interface Spot {
  readonly ring: { left: number; top: number; width: number; height: number };
  readonly card: { left: number; top: number };
}

/** Place of the ring around a target, and of the card beside it. */
function spotOf(root: HTMLElement, target: Target, card: HTMLElement): Spot | null {
  const frame = root.getBoundingClientRect();
  const selector = ELEMENTS[target].find((name) => root.querySelector(name));
  const element = selector && root.querySelector<HTMLElement>(selector);
  if (!element) return null;
  const list = element.querySelector(".pop");
  // On phones the list is a sheet, away from the answer: the ring does not span what is between.
  const isSheet = list !== null && getComputedStyle(list).position === "fixed";
  const parts = isSheet ? [list] : [element, ...element.querySelectorAll(".ghost, .pop")];
  const boxes = parts.map((part) => part.getBoundingClientRect());
  const left = Math.max(3, Math.min(...boxes.map((box) => box.left)) - frame.left - 5);
  const top = Math.max(3, Math.min(...boxes.map((box) => box.top)) - frame.top - 5);
  const right = Math.min(frame.width - 3, Math.max(...boxes.map((b) => b.right)) - frame.left + 5);
  const lowest = Math.max(...boxes.map((box) => box.bottom));
  const bottom = Math.min(frame.height - 3, lowest - frame.top + 5);
  const ring = { left, top, width: right - left, height: bottom - top };
  const { offsetWidth: wide, offsetHeight: high } = card;
  const clampX = (x: number) => Math.max(8, Math.min(x, frame.width - wide - 8));
  const clampY = (y: number) => Math.max(8, Math.min(y, frame.height - high - 8));
  const fits = [
    { left: clampX(left), top: bottom + AWAY, isFree: bottom + AWAY + high < frame.height - 4 },
    { left: right + AWAY, top: clampY(top + 20), isFree: right + AWAY + wide < frame.width - 4 },
    { left: left - AWAY - wide, top: clampY(top + 20), isFree: left - AWAY - wide > 4 },
    { left: clampX(left), top: top - AWAY - high, isFree: top - AWAY - high > 4 },
  ];
  const isLow = target === "sentence" || target === "answer";
  const order = isLow ? fits : [...fits.slice(1), fits[0]];
  const free = order.find(({ isFree }) => isFree);
  return {
    ring,
    card: free ?? { left: clampX((frame.width - wide) / 2), top: frame.height - high - 8 },
  };
}

/** Step of the story: ring, dimmed page and caption. */
export function Tour() {
  const explorer = useExplorer();
  const { session } = explorer;
  const { story } = session.store;
  const { story: number } = session.selection.value;
  const step = story[number - 1];
  const card = useRef<HTMLElement>(null);
  const [spot, setSpot] = useState<Spot | null>(null);
  const busy = session.requests.busy.value;
  const caption = step ? step.caption || say(session, step.numbers!) : "";
  useLayoutEffect(() => {
    if (!step) {
      setSpot(null);
      return;
    }
    const place = () => card.current && setSpot(spotOf(explorer.root, step.target, card.current));
    place();
    // Panes are measured and layers unpacked after the first drawing.
    const later = [60, 250, 700].map((delay) => setTimeout(place, delay));
    return () => later.forEach(clearTimeout);
  }, [step, caption, busy, session.size.value, session.selection.value]);
  // Space on the button that opened the tour would open it again.
  const isPlaced = step !== undefined && spot !== null;
  useLayoutEffect(() => {
    if (isPlaced) card.current?.querySelector<HTMLElement>(".go")?.focus({ preventScroll: true });
  }, [isPlaced]);
  if (!step) return null;
  const isLast = number === story.length;
  const hasExercise = isLast && session.exercise.questions.length > 0;
  return (
    <>
      {spot && <div class="ring" aria-hidden="true" style={px(spot.ring)} />}
      <aside
        ref={card}
        class="story card"
        aria-label="Tour"
        style={
          spot
            ? px({ ...spot.card, width: Math.min(CARD, session.size.value.width - 24) })
            : { visibility: "hidden" }
        }
      >
        <span class="n num">
          {number} / {story.length}
        </span>
        <p aria-live="polite">{caption}</p>
        {busy && (
          <p class="mut" role="status">
            {busy}
          </p>
        )}
        <div class="do">
          <span class="dots">
            {story.map((item, i) => (
              <Button
                key={`${i}${item.selection}`}
                aria-label={`Step ${i + 1}`}
                aria-current={number === i + 1 ? "step" : undefined}
                onClick={() => goTo(session, i + 1)}
              />
            ))}
          </span>
          <span class="gap" />
          {number > 1 && (
            <Button class="b" aria-label="Back" onClick={() => goTo(session, number - 1)}>
              ◂
            </Button>
          )}
          {!(isLast && !hasExercise) && (
            <Button class="b leave" onClick={() => goTo(session, story.length + 1)}>
              Leave
            </Button>
          )}
          <Button
            class="go"
            onClick={() => {
              goTo(session, number + 1);
              if (hasExercise) session.exercise.open(1);
            }}
          >
            {hasExercise ? "Your turn ▸" : isLast ? "Done" : "Next ▸"}
          </Button>
        </div>
      </aside>
    </>
  );
}

/** Caption with the numbers that the page shows at the step. */
function say(session: Session, numbers: Numbers): string {
  const side = session.lead.value;
  const selection = session.selection.value;
  const found = beforeAfter(session, side);
  const answer = found ? printed(found.before.top[0].text) : "";
  const own = readBy(session, selection);
  if (numbers === "reader") {
    if (!own) return `The arcs show what ${headName(selection)} reads, and how much.`;
    const start = `For “${own.word}”, ${headName(selection)} reads “${own.text}” ${shortWeight(own.weight)}`;
    return own.text === answer
      ? `${start}: the very word that the model says next. Is that why?`
      : `${start}. The shares of a word add up to 1.`;
  }
  if (numbers === "twist") {
    const first = found?.before.top[0];
    const now = first && found.after?.get(first.text);
    if (!first || now === undefined) return "Effect says what changes without the head.";
    const change = `${probability(first.probability).replace(" %", "")} → ${probability(now)}`;
    const who = own ? `the head that reads “${own.text}”` : "the head";
    const by = now - first.probability;
    if (Math.abs(by) < 0.005) {
      return `It is switched off now, and “${answer}” hardly moves: ${change}. Reading is not using.`;
    }
    return by > 0
      ? `It is switched off now, and “${answer}” does not fall but rises: ${change}. In this sentence, ${who} lowers its probability.`
      : `It is switched off now, and “${answer}” falls: ${change}. In this sentence, ${who} raises its probability.`;
  }
  const effects = headEffects(session, side);
  const first = effects?.all[0];
  if (!effects || !first) return "Effect says what changes without the head.";
  const best = { layer: side.block.layers[first.layerIndex], head: first.head };
  const count = effects.all.length;
  if (effects.kind === "cosine_distance") {
    const place = indexOfHead(effects.all, session.layerIndex(side.block), selection.head) + 1;
    return place === 1
      ? `Does it matter? Without ${headName(best)}, the text's vector changes most of all ${count} heads.`
      : `Reading is not using: without ${headName(best)}, the text's vector changes most. ${headName(selection)} is ${ordinal(place)} of ${count}.`;
  }
  const read = readBy(session, best);
  const reads = read ? ` It reads “${read.text}” ${shortWeight(read.weight)}.` : "";
  return `All ${count} heads, each switched off alone. In this sentence, ${effects.what} changes most without ${headName(best)}: ${effects.format(first.value)} ${effects.unit}.${reads}`;
}

/** Word that the pinned word reads most with a head, the first token aside. */
export function readBy(session: Session, id: HeadId) {
  const { filtered } = session.lead.value;
  const { rows, columns } = filtered;
  const row = rowOf(rows, session.selection.value.word);
  const matrix = row < 0 ? null : session.single(session.lead.value, id);
  const top = matrix
    ? summary(rowWeights(matrix, row), 3, 0).top.find(
        ({ index }) => columns[index].positions[0] > 0 && !columns[index].special,
      )
    : undefined;
  return top && { word: named(rows[row]), text: named(columns[top.index]), weight: top.weight };
}
