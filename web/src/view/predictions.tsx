// Predictions of the model beside the text.

import type { Answer } from "../../generated/payload.ts";
import { printed } from "../data/tokens.ts";
import type { Trace } from "../data/trace.ts";
import type { Side } from "../state/session.ts";
import { useSession } from "./explorer_context.ts";

const KINDS = {
  next: "next word",
  mask: "masked word",
  label: "label",
} as const;

interface Predicted {
  readonly position: number | null;
  readonly top: readonly Answer[];
  readonly title: string;
  /** Word before or at the prediction; empty for the whole text. */
  readonly word: string;
  /** Whether it follows the whole text, or is about it. */
  readonly isLast: boolean;
}

/** Prediction at the pinned word, else at the last position. */
export function predictedAt(trace: Trace, word: number | null): Predicted | null {
  const { predictions } = trace;
  if (!predictions || predictions.positions.length === 0) return null;
  const { kind, positions } = predictions;
  const pinned = positions.find(({ position }) => position !== null && position === word);
  const { position, top } = pinned ?? positions[positions.length - 1];
  const tokens = trace.blocks.at(-1)!.queryTokens;
  const text = position === null ? "" : printed(tokens.texts[position] ?? "");
  const isLast = kind !== "next" || position === tokens.texts.length - 1;
  return { position, top, title: KINDS[kind], word: text, isLast };
}

const SHOWN = 5;

export function Predictions({ side }: { side: Side }) {
  const session = useSession();
  const { word } = session.selection.value;
  const position = session.place(side, word, "query");
  const now = predictedAt(side.now, position);
  if (!now) return null;
  const before = side.now === side.base ? null : predictedAt(side.base, position);
  const most = Math.max(0.01, ...now.top.map(({ probability }) => probability));
  return (
    <div class="pred">
      <h2 class="sec">
        {now.title}
        {!now.isLast && ` after “${now.word}”`}
        {before ? ", edited" : ""}
      </h2>
      {now.top.slice(0, SHOWN).map(({ text, probability }) => {
        const was = before?.top.find((answer) => answer.text === text)?.probability;
        return (
          <div class="r" key={text}>
            <span class="t" dir="auto">
              {printed(text)}
            </span>
            <span class="hb">
              <i style={{ width: `${(100 * probability) / most}%` }} />
              {was !== undefined && <u style={{ left: `${Math.min(100, (100 * was) / most)}%` }} />}
            </span>
            <span class="num">{(100 * probability).toFixed(1)}</span>
          </div>
        );
      })}
    </div>
  );
}
