// Picture with attention over it, or a recording on a time axis.

import { useMemo } from "preact/hooks";
import type { Focus } from "../data/filtered_block.ts";
import { formatWeight } from "../data/format.ts";
import { type Piece, pieceOf } from "../data/media.ts";
import { type Entry, named, printed, unitOf } from "../data/tokens.ts";
import type { Tokens } from "../data/trace.ts";
import {
  patchAt,
  patchBox,
  pictureBoxes,
  pictureMarks,
  type Shares,
  sharesOf,
  timelineMarks,
} from "../layout/media_layout.ts";
import type { Box, Mark } from "../layout/scene.ts";
import type { Session, Side } from "../state/session.ts";
import { Drawing, Segments } from "./controls.tsx";
import { useExplorer, useSession, useSize } from "./explorer_context.ts";

export function MediaStrip() {
  const session = useSession();
  return (
    <>
      {session.shown.value.map((side) =>
        showsMedia(side) ? <Medium key={side.trace} side={side} /> : null,
      )}
    </>
  );
}

/** Whether tokens of this block are patches or frames of stored media. */
function showsMedia({ now, block }: Side): boolean {
  const { pictures, sound } = now.media;
  const pieces = [...block.queryTokens.pieces, ...block.keyTokens.pieces];
  return pieces.some((piece) =>
    piece?.kind === "patch" ? pictures.length > 0 : piece !== null && sound !== null,
  );
}

function Medium({ side }: { side: Side }) {
  const explorer = useExplorer();
  const { session } = explorer;
  const theme = session.theme.value;
  const { ref, width, height } = useSize<HTMLDivElement>();
  const { media } = side.now;
  const isSound = media.pictures.length === 0;
  const { rows, columns } = side.filtered;
  const { block } = side;
  const queries = useMemo(() => piecesOf(rows, block.queryTokens), [side.filtered]);
  const keys = useMemo(() => piecesOf(columns, block.keyTokens), [side.filtered]);
  const matrix = session.matrix(side);
  const focus = session.focus(side);
  const shares = matrix && sharesOf(matrix, focus, queries, keys);
  // Words and controls stand below, in more lines on a phone.
  const below = session.layout.value === "phone" ? 106 : 62;
  const room = { width: Math.max(40, width - 28), height: Math.max(40, height - below) };
  // Patches are pointed at as queries, or as keys if queries are text.
  const axis = block.queryTokens.pieces.some(Boolean) ? "query" : "key";
  const { pictures } = media;
  // One copy asks, which shows the patch that looks; the other answers, under the veil.
  const isTwice = !isSound && axis === "query";
  const shown = isTwice ? [...pictures, ...pictures] : pictures;
  const placed = isSound ? [] : pictureBoxes(shown, room.width, room.height);
  const [asks, answers] = [placed.slice(0, pictures.length), placed.slice(-pictures.length)];
  const last = placed.at(-1);
  const size = last ? { width: last.x + last.width, height: last.height } : room;
  const marks: Mark[] = useMemo(() => {
    if (width === 0) return [];
    const drawn = isSound
      ? timelineMarks(media.sound!, shares, size.width, size.height, theme)
      : [
          ...(isTwice ? pictureMarks(pictures, asks, null, theme) : []),
          ...pictureMarks(pictures, answers, shares, theme),
        ];
    const frame = (color: string) => (box: Box) =>
      ({ kind: "frame", ...box, color, thickness: 2 }) as const;
    return [
      ...drawn,
      ...(shares && !isSound ? strongestBoxes(shares, answers).map(frame(theme.tone.accent)) : []),
      ...focusBoxes(side, focus, asks).map(frame(theme.tone.ink)),
    ];
  }, [shares?.weights, matrix, focus.row, focus.column, width, height, theme]);
  const entryAt = (event: MouseEvent): Entry | null => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const [entries, pieces] = axis === "query" ? [rows, queries] : [columns, keys];
    if (!isSound) {
      const found = [asks, answers].map((boxes) => patchAt(pieces, boxes, x, y));
      return entries[found.find((index) => index >= 0) ?? -1] ?? null;
    }
    const second = (x / size.width) * media.sound!.seconds;
    const index = pieces.findIndex(
      (piece) => piece?.kind === "frame" && second >= piece.start && second < piece.end,
    );
    return entries[index] ?? null;
  };
  const words = shares ? captionOf(session, side, shares, isSound) : "";
  const { filter } = session.selection.value;
  return (
    <div class={`media ${isSound ? "sound" : ""}`} ref={ref}>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: the words below have the keys */}
      <div
        class="medium"
        role="presentation"
        onPointerMove={(event) => {
          const entry = entryAt(event);
          session.point(entry ? { [axis]: entry.positions[0] } : {});
          if (entry) explorer.showTip(event, `${named(entry)} · ${axis} ${entry.positions[0]}`);
          else explorer.hideTip();
        }}
        onPointerLeave={explorer.clearHover}
        onClick={(event) => {
          const entry = entryAt(event);
          if (!entry) return;
          const field = axis === "query" ? "word" : "key";
          const now = session.selection.peek()[field];
          session.update({ [field]: now === entry.positions[0] ? null : entry.positions[0] });
        }}
      >
        <Drawing marks={marks} width={size.width} height={size.height} label={words} />
      </div>
      <p class="mut media-words">{words}</p>
      <div class="media-controls">
        {isTwice && (
          <span class="mut">left: choose the patch that looks · right: what it looks at</span>
        )}
        <span class="gap" />
        <Segments<"off" | "layer" | "all">
          label="Attention of"
          value={filter.combine}
          options={[
            ["off", "this head"],
            ["layer", "its layer, averaged"],
            ["all", "all layers, averaged"],
          ]}
          choose={(combine) => session.update({ filter: { ...filter, combine } })}
        />
      </div>
    </div>
  );
}

const FRAMED = 3;

/** Boxes of the patches with the largest weights. */
function strongestBoxes({ pieces, weights }: Shares, boxes: readonly Box[]): Box[] {
  const order = Array.from(weights.keys())
    .filter((i) => pieces[i]?.kind === "patch" && weights[i] > 0)
    .sort((a, b) => weights[b] - weights[a]);
  const strongest = order.slice(0, FRAMED).map((i) => pieces[i]);
  return patchBoxes(strongest, boxes);
}

function patchBoxes(pieces: readonly (Piece | null)[], boxes: readonly Box[]): Box[] {
  const found = pieces.map((piece) => (piece?.kind === "patch" ? patchBox(piece, boxes) : null));
  return found.filter((box) => box !== null);
}

function piecesOf(entries: readonly Entry[], tokens: Tokens): (Piece | null)[] {
  return entries.map((entry) => pieceOf(tokens.pieces, entry.positions));
}

function focusBoxes(
  { filtered, block }: Side,
  { row, column }: Focus,
  boxes: readonly Box[],
): Box[] {
  const pieces = [
    row >= 0 ? pieceOf(block.queryTokens.pieces, filtered.rows[row].positions) : null,
    column >= 0 ? pieceOf(block.keyTokens.pieces, filtered.columns[column].positions) : null,
  ];
  return patchBoxes(pieces, boxes);
}

function captionOf(session: Session, side: Side, shares: Shares, isSound: boolean): string {
  const { rows, columns } = side.filtered;
  const { row, column } = session.focus(side);
  const turned = shares.side === "query";
  const word = turned ? columns[column] : rows[row];
  const who = word?.kind ? named(word) : `“${printed(word?.label ?? "")}”`;
  const unit = unitOf(side.block.queryTokens);
  const what = !word
    ? `Where all ${rows.length} ${{ patch: "patches", frame: "frames", word: "words" }[unit ?? "word"]} look, on average`
    : turned
      ? `Attention to ${who} comes from`
      : `Where ${who} looks`;
  const best = shares.weights.reduce(
    (top, weight, i) => (shares.pieces[i] && weight > shares.weights[top] ? i : top),
    Math.max(0, shares.pieces.findIndex(Boolean)),
  );
  const other = (turned ? rows : columns)[best];
  const precision = side.block.isFine ? "fine" : "coarse";
  const most = `${formatWeight(shares.weights[best], precision)} at ${named(other)}`;
  const least = shares.weights.reduce(
    (low, weight, i) => (shares.pieces[i] && weight < low ? weight : low),
    Number.POSITIVE_INFINITY,
  );
  const seconds = side.now.media.sound?.seconds ?? 0;
  let [inside, all] = [0, 0];
  shares.weights.forEach((weight, i) => {
    const piece = shares.pieces[i];
    all += weight;
    if (piece && (piece.kind === "patch" || piece.start < seconds)) inside += weight;
  });
  const part =
    turned || all === 0
      ? ""
      : ` · ${Math.round((100 * inside) / all)} % of it on ${isSound ? "the recording" : "the image"}`;
  return `${what}: most ${most}, least ${formatWeight(least, precision)}${part}; bright is relative to the most`;
}
