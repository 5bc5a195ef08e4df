// Above the head view: the picture with attention laid over it, or the recording on a time axis.

import { type Entry, printed } from "../data/axis.ts";
import { combine, type Matrix } from "../data/lens.ts";
import { type Piece, pieceOf } from "../data/media.ts";
import { formatWeight } from "../data/number.ts";
import type { Tokens, Trace } from "../data/trace.ts";
import { focusOf } from "../layout/focus.ts";
import {
  type Box,
  patchAt,
  patchBox,
  pictureBoxes,
  pictureMarks,
  type Shares,
  sharesOf,
  timelineMarks,
} from "../layout/overlay.ts";
import type { Mark, Scene } from "../layout/scene.ts";
import { paint, prepare } from "../paint/canvas.ts";
import { make } from "./element.ts";
import type { Panel } from "./panel.ts";
import type { Scope } from "./scope.ts";

/** From this width of the panel on, the picture stands beside the tokens, else above them. */
const BESIDE = 620;

export class MediaStrip {
  private readonly canvas = make("canvas", { attributes: { role: "img" } });
  private readonly text = make("p", { class: "media-words" });
  readonly element = make("div", { class: "media" }, this.canvas, this.text);
  private boxes: readonly Box[] = [];
  private matrix: Matrix | null = null;
  private marks: Mark[] = [];
  private size = { width: 0, height: 0 };

  constructor(
    private readonly scope: Scope,
    private readonly panel: Panel,
  ) {
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.canvas.addEventListener("click", (event) => this.pin(this.entryAt(event)));
  }

  /** Lay out anew: the block, the heads or the size changed. */
  render(): void {
    const { queryTokens, keyTokens } = this.panel.lens.block;
    const kinds = [...queryTokens.pieces, ...keyTokens.pieces].filter((piece) => piece !== null);
    const hasPictures = this.trace.media.pictures.length > 0;
    const shows = kinds.some((piece) => (piece.kind === "patch" ? hasPictures : this.hasSound));
    this.element.hidden = !shows || this.panel.series.length === 0;
    if (this.element.hidden) return;
    this.element.classList.toggle("sound", this.isSound);
    const matrices = this.panel.series.map((one) => one.matrix);
    this.matrix = matrices.length === 1 ? matrices[0] : combine(matrices, "mean");
    const room = this.element.parentElement?.clientWidth ?? 0;
    this.element.classList.toggle("beside", !this.isSound && room >= BESIDE);
    const { clientWidth, clientHeight } = this.element;
    const width = Math.max(40, clientWidth - 28);
    const height = Math.max(40, clientHeight - (room >= BESIDE && !this.isSound ? 76 : 34));
    this.boxes = this.isSound ? [] : pictureBoxes(this.trace.media.pictures, width, height);
    const last = this.boxes.at(-1);
    this.size = last ? { width: last.x + last.width, height: last.height } : { width, height };
    this.renderFocus();
  }

  renderFocus(): void {
    if (this.element.hidden || !this.matrix) return;
    const shares = this.shares();
    this.marks = this.draw(shares);
    const { width, height } = this.size;
    const context = prepare(this.canvas, width, height);
    paint(context, { marks: this.marks }, { top: -1, bottom: height + 1 });
    this.text.textContent = this.say(shares);
    this.canvas.setAttribute("aria-label", this.words);
  }

  /** What is laid over the picture, in words. */
  get words(): string {
    return this.text.textContent ?? "";
  }

  scene(): Scene | null {
    if (this.element.hidden) return null;
    return { ...this.size, background: this.scope.theme.tone.panel, marks: this.marks };
  }

  private get trace(): Trace {
    return this.scope.traces[this.panel.trace];
  }

  private get hasSound(): boolean {
    return this.trace.media.sound !== null;
  }

  private get isSound(): boolean {
    return this.trace.media.pictures.length === 0;
  }

  private pieces(entries: readonly Entry[], tokens: Tokens): (Piece | null)[] {
    return entries.map((entry) => pieceOf(tokens.pieces, entry.positions));
  }

  private shares(): Shares | null {
    const { queries, keys, lens } = this.panel;
    const { selection, hover } = this.scope.store;
    const focus = focusOf(queries, keys, selection, hover);
    const rows = this.pieces(queries, lens.block.queryTokens);
    const columns = this.pieces(keys, lens.block.keyTokens);
    return sharesOf(this.matrix!, focus, rows, columns);
  }

  private draw(shares: Shares | null): Mark[] {
    const { theme } = this.scope;
    const { pictures, sound } = this.trace.media;
    if (this.isSound)
      return timelineMarks(sound!, shares, this.size.width, this.size.height, theme);
    const marks = pictureMarks(pictures, this.boxes, shares, theme);
    for (const box of this.focused()) {
      marks.push({ kind: "frame", ...box, color: theme.tone.negative, thickness: 2 });
    }
    return marks;
  }

  /** Boxes of the patches that are pinned or under the pointer. */
  private focused(): Box[] {
    const { queries, keys, lens } = this.panel;
    const { selection, hover } = this.scope.store;
    const { rows, columns } = focusOf(queries, keys, selection, hover);
    const sides = [
      { at: rows, entries: queries, tokens: lens.block.queryTokens },
      { at: columns, entries: keys, tokens: lens.block.keyTokens },
    ];
    return sides.flatMap(({ at, entries, tokens }) =>
      [...(at ?? [])].flatMap((index) => {
        const piece = pieceOf(tokens.pieces, entries[index].positions);
        const box = piece?.kind === "patch" ? patchBox(piece, this.boxes) : null;
        return box ? [box] : [];
      }),
    );
  }

  private say(shares: Shares | null): string {
    const { queries, keys } = this.panel;
    const { selection, hover } = this.scope.store;
    const { rows, columns } = focusOf(queries, keys, selection, hover);
    if (!shares) return "";
    const turned = shares.side === "query";
    const own = turned ? columns : rows;
    const names = [...(own ?? [])].map((at) => `“${printed((turned ? keys : queries)[at].label)}”`);
    const who = names.length > 2 ? `${names.length} tokens` : names.join(", ");
    const heads = this.panel.series.map((one) => one.label).join(", ");
    const what = names.length === 0
      ? `all ${queries.length} queries look, on average`
      : turned ? `attention to ${who} comes from` : `${who} looks`; // biome-ignore format: one choice per line
    const best = shares.weights.reduce(
      (top, weight, i) => (shares.pieces[i] && weight > shares.weights[top] ? i : top),
      Math.max(0, shares.pieces.findIndex(Boolean)),
    );
    const other = (turned ? queries : keys)[best];
    const most = other
      ? `most ${formatWeight(shares.weights[best], this.panel.precision)} at ${printed(other.label)}`
      : "";
    const inside = this.inside(shares);
    const share = turned
      ? ""
      : ` · ${Math.round(100 * inside)} % of it on ${this.isSound ? "the recording" : "the image"}`;
    return `Where ${what} (${heads}): ${most}${share}`.replace("Where attention", "Attention");
  }

  /** The share of attention that goes to pieces of what is shown. */
  private inside(shares: Shares): number {
    const seconds = this.trace.media.sound?.seconds ?? 0;
    let [sum, all] = [0, 0];
    shares.weights.forEach((weight, i) => {
      const piece = shares.pieces[i];
      all += weight;
      if (piece && (piece.kind === "patch" || piece.start < seconds)) sum += weight;
    });
    return all > 0 ? sum / all : 0;
  }

  /** The side that a picture is taken for: its patches look, where they are queries. */
  private get side(): "query" | "key" {
    return this.panel.lens.block.queryTokens.pieces.some(Boolean) ? "query" : "key";
  }

  private entryAt(event: MouseEvent): Entry | null {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const { queries, keys, lens } = this.panel;
    const isQuery = this.side === "query";
    const entries = isQuery ? queries : keys;
    const tokens = isQuery ? lens.block.queryTokens : lens.block.keyTokens;
    const pieces = this.pieces(entries, tokens);
    if (!this.isSound) return entries[patchAt(pieces, this.boxes, x, y)] ?? null;
    const second = (x / this.size.width) * this.trace.media.sound!.seconds;
    const at = pieces.findIndex(
      (piece) => piece?.kind === "frame" && second >= piece.start && second < piece.end,
    );
    return entries[at] ?? null;
  }

  private point(event: PointerEvent): void {
    const entry = this.entryAt(event);
    if (!entry) {
      this.leave();
      return;
    }
    this.scope.store.point({ [this.side]: entry.positions[0] });
    const shares = this.shares();
    const heading = `${printed(entry.label)}  ·  ${this.side} ${entry.positions[0]}`;
    const rows = shares
      ? [{ label: "highest", value: formatWeight(shares.highest, this.panel.precision) }]
      : [];
    this.scope.tooltip.show(event, heading, rows);
  }

  private leave(): void {
    this.scope.tooltip.hide();
    this.scope.store.point({});
  }

  private pin(entry: Entry | null): void {
    if (!entry) return;
    const field = this.side === "query" ? "queries" : "keys";
    const pinned = this.scope.store.selection[field];
    const position = entry.positions[0];
    const isPinned = pinned.includes(position);
    this.scope.store.update({
      [field]: isPinned ? pinned.filter((one) => one !== position) : [...pinned, position],
    });
  }
}
