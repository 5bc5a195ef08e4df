// One token column of the head view: a list box whose chosen options are the pinned tokens.

import { type Entry, printed } from "../data/axis.ts";
import { type Piece, pieceOf } from "../data/media.ts";
import type { Columns } from "../layout/columns.ts";
import { widestEms } from "../paint/canvas.ts";
import { make } from "./element.ts";
import type { Panel } from "./panel.ts";
import { patchThumbnail } from "./patch_thumbnail.ts";
import type { Scope } from "./scope.ts";

let numbered = 0;

export class TokenColumn {
  private readonly id = `tokens-${numbered++}`;
  readonly element: HTMLElement;
  private entries: readonly Entry[] = [];
  private options: HTMLElement[] = [];
  private active = 0;

  constructor(
    private readonly scope: Scope,
    private readonly panel: Panel,
    private readonly side: "query" | "key",
  ) {
    const name = side === "query" ? "Query tokens" : "Key tokens";
    this.element = make("div", {
      class: `tokens ${side}`,
      attributes: {
        role: "listbox",
        tabindex: "0",
        "aria-label": `${name}: arrows move, Enter pins`,
        "aria-multiselectable": "true",
      },
      on: {
        click: (event) => this.click(event),
        keydown: (event) => this.key(event as KeyboardEvent),
        blur: () => this.scope.store.point({}),
      },
    });
  }

  /** Widest label in ems, with its padding. */
  measure(entries: readonly Entry[]): number {
    const isPatch = (entry: Entry) => this.pieceOf(entry)?.kind === "patch";
    const room = entries.some(isPatch) ? 2.2 : 0.4;
    return widestEms(entries.map((entry) => printed(entry.label))) + room;
  }

  render(entries: readonly Entry[], columns: Columns): void {
    const isQuery = this.side === "query";
    const { style } = this.element;
    const width = isQuery ? columns.labels.leftWidth : columns.labels.rightWidth;
    style.left = `${isQuery ? columns.labels.left - width : columns.labels.right}px`;
    style.width = `${width}px`;
    style.top = `${columns.top}px`;
    style.fontSize = `${columns.fontSize}px`;
    style.lineHeight = `${columns.rowHeight}px`;
    if (entries !== this.entries) {
      this.entries = entries;
      this.active = Math.min(this.active, Math.max(entries.length - 1, 0));
      this.options = entries.map((entry, index) => this.option(entry, index));
      this.element.replaceChildren(...this.options);
      this.element.removeAttribute("aria-activedescendant");
    }
  }

  /** Show which tokens are pinned and which are looked at. */
  mark(focused: ReadonlySet<number> | null): void {
    const { selection } = this.scope.store;
    const pinned = new Set(this.side === "query" ? selection.queries : selection.keys);
    const found = this.scope.search;
    this.options.forEach((option, index) => {
      const entry = this.entries[index];
      const isPinned = entry.positions.some((position) => pinned.has(position));
      option.setAttribute("aria-selected", String(isPinned));
      option.classList.toggle("focused", focused?.has(index) ?? false);
      const isFound = found !== "" && printed(entry.label).toLowerCase().includes(found);
      option.classList.toggle("found", isFound);
    });
  }

  private pieceOf(entry: Entry): Piece | null {
    const { queryTokens, keyTokens } = this.panel.lens.block;
    const tokens = this.side === "query" ? queryTokens : keyTokens;
    return pieceOf(tokens.pieces, entry.positions);
  }

  private option(entry: Entry, index: number): HTMLElement {
    const kinds = [entry.special ? "special" : "", entry.generated ? "generated" : ""];
    const segment = this.panel.lens.block.queryTokens.segments.includes(1) && entry.segment === 1;
    const notes = [
      entry.special ? "special token" : "",
      entry.generated ? "written by the model" : "",
    ].filter(Boolean);
    const label = make("bdi", { text: printed(entry.label) });
    const { media } = this.scope.traces[this.panel.trace];
    const thumbnail = patchThumbnail(this.pieceOf(entry), media);
    const parts = this.side === "query" ? [label, thumbnail] : [thumbnail, label];
    return make(
      "div",
      {
        class: ["token", ...kinds, segment ? "second" : ""].filter(Boolean).join(" "),
        attributes: {
          role: "option",
          id: `${this.id}-${index}`,
          "aria-selected": "false",
          "data-position": String(entry.positions[0]),
          ...(notes.length ? { "aria-description": notes.join(", ") } : {}),
        },
      },
      ...parts,
    );
  }

  private click(event: Event): void {
    const option = (event.target as HTMLElement).closest<HTMLElement>("[role=option]");
    if (option) this.toggle(this.options.indexOf(option));
  }

  private toggle(index: number): void {
    const entry = this.entries[index];
    if (!entry) return;
    const field = this.side === "query" ? "queries" : "keys";
    const pinned = this.scope.store.selection[field];
    const isPinned = entry.positions.some((position) => pinned.includes(position));
    const rest = pinned.filter((position) => !entry.positions.includes(position));
    this.scope.store.update({ [field]: isPinned ? rest : [...rest, entry.positions[0]] });
  }

  private key(event: KeyboardEvent): void {
    const last = this.entries.length - 1;
    const moves: Record<string, number> = {
      ArrowDown: Math.min(this.active + 1, last),
      ArrowUp: Math.max(this.active - 1, 0),
      Home: 0,
      End: last,
    };
    if (event.key in moves) {
      this.active = moves[event.key];
      this.element.setAttribute("aria-activedescendant", `${this.id}-${this.active}`);
      this.scope.store.point({ [this.side]: this.entries[this.active].positions[0] });
      this.options[this.active].scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter" || event.key === " ") {
      this.toggle(this.active);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}
