// Store of the selection: its signal, its address, the steps of the story, and the hover.

import { type Signal, signal } from "@preact/signals";
import type { Header } from "../../generated/payload.ts";
import type { Trace } from "../data/trace.ts";
import {
  defaultSelection,
  fitSelection,
  formatFragment,
  type HeadId,
  isSameHead,
  parseFragment,
  type Selection,
} from "./selection.ts";
import { type Step, storyOf, tourOf } from "./tour.ts";

/** Token positions under the pointer or the keyboard focus; never part of the URL. */
export type Hover = Readonly<{ query: number | null; key: number | null }>;

const NO_HOVER: Hover = { query: null, key: null };

export class SelectionStore {
  readonly base: Selection;
  /** Steps of the page's story, or of the tour. */
  readonly story: readonly Step[];
  readonly selection: Signal<Selection>;
  readonly hover = signal<Hover>(NO_HOVER);

  constructor(
    private readonly header: Header,
    private readonly traces: readonly Trace[],
    canRun: boolean,
    fragment: string,
  ) {
    const first = traces[header.examples[0].traces[0]];
    this.story = storyOf(header.story);
    const isPair = header.examples[0].traces.length > 1;
    this.base = this.fit(parseFragment(header.selection, defaultSelection(first, isPair)));
    if (header.story.length === 0) {
      const opening = traces[header.examples[this.base.example].traces[0]];
      this.story = tourOf(opening, this.base, header, canRun);
      this.base = { ...this.base, story: -1 };
    }
    this.selection = signal(this.fit(this.parse(fragment, this.base)));
  }

  get fragment(): string {
    const selection = this.selection.value;
    return formatFragment(selection, this.stepSelection(selection.story, this.base));
  }

  /** Fragment of the selection as a story step for any page, with or without a word. */
  get step(): string {
    const { story, theme, embed } = this.base;
    return formatFragment(
      { ...this.selection.value, story, theme, embed },
      { ...this.base, word: this.selection.value.word === null ? -1 : null },
    );
  }

  update = (changes: Partial<Selection>): void => {
    const before = this.selection.peek();
    const isMoved = changes.example !== undefined && changes.example !== before.example;
    // Steps of a training are one text: what is pinned stays.
    const cleared =
      isMoved && !this.header.steps ? { word: null, key: null, edits: [], answers: false } : {};
    this.selection.value = this.fit({ ...before, ...cleared, ...changes });
  };

  /** Go to a fragment; fields that it lacks open as the page does. */
  open(fragment: string, keep: Partial<Selection> = {}): void {
    const { theme, embed } = this.selection.peek();
    this.update({ ...this.parse(fragment, { ...this.base, theme, embed }), ...keep });
  }

  point = (hover: Partial<Hover>): void => {
    const next = { ...NO_HOVER, ...hover };
    const now = this.hover.peek();
    if (next.query !== now.query || next.key !== now.key) this.hover.value = next;
  };

  /** Draw a head over the chosen one, or remove it. */
  toggleAlso(id: HeadId): void {
    const { also, layer, head } = this.selection.peek();
    if (isSameHead(id, { layer, head })) {
      // The next head takes the place of the chosen one.
      const [next, ...rest] = also;
      if (next) this.update({ ...next, also: rest });
      return;
    }
    const rest = also.filter((other) => !isSameHead(other, id));
    this.update({ also: rest.length < also.length ? rest : [...also, id] });
  }

  /** Selection that a step of the story opens; that of the page before and without one. */
  private stepSelection(step: number, base: Selection): Selection {
    const current = this.story[step - 1];
    return current ? parseFragment(current.selection, base) : base;
  }

  /** Parse a fragment on top of the story step that it names. */
  private parse(fragment: string, base: Selection): Selection {
    const { story } = parseFragment(fragment, base);
    return parseFragment(fragment, this.stepSelection(story, base));
  }

  private fit(selection: Selection): Selection {
    const { examples } = this.header;
    const example = selection.example < examples.length ? selection.example : 0;
    const story = Math.min(selection.story, this.story.length);
    return fitSelection({ ...selection, example, story }, this.traces[examples[example].traces[0]]);
  }
}
