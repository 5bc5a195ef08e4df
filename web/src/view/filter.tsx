// The one place that says what is drawn: it applies to thumbnails, sentence, head and numbers.

import { type Filter, NO_FILTER } from "../data/lens.ts";
import { useSession } from "./context.ts";
import { Segments } from "./parts.tsx";

/** What is on, in a few words. */
export function describeFilter(filter: Filter): string {
  const parts = [`special tokens ${filter.specials}`];
  if (filter.above !== NO_FILTER.above) parts.push(`above ${filter.above}`);
  if (filter.top > 0) parts.push(`${filter.top} per word`);
  if (filter.pairs !== "all") parts.push(PAIRS[filter.pairs]);
  if (filter.unit === "words") parts.push("words");
  if (filter.combine !== "off")
    parts.push(filter.combine === "all" ? "mean of all heads" : "mean of the layer");
  return parts.join(", ");
}

const PAIRS = { all: "all", ab: "A→B", ba: "B→A", within: "within" } as const;

export function FilterPopover() {
  const session = useSession();
  const { filter } = session.selection.value;
  const { block } = session.lead.value;
  const hasPair = block.name !== "cross" && new Set(block.queryTokens.segments).size > 1;
  const hasWords = [block.queryTokens, block.keyTokens].some(
    ({ groups, texts }) => groups.length < texts.length,
  );
  const set = (changes: Partial<Filter>) => session.update({ filter: { ...filter, ...changes } });
  return (
    <div class="pop" role="dialog" aria-label="What is drawn">
      <h2 class="sec">What is drawn</h2>
      <Choice
        name="Special tokens"
        value={filter.specials}
        options={{ shown: "shown", dimmed: "dimmed", hidden: "hidden" }}
        choose={(specials) => set({ specials })}
      />
      <label class="field">
        <span>Weights above</span>
        <span class="range">
          <input
            type="range"
            min="0"
            max="0.5"
            step="0.01"
            value={filter.above}
            onInput={(event) => set({ above: Number(event.currentTarget.value) })}
          />
          <b class="num">{filter.above.toFixed(2)}</b>
        </span>
      </label>
      <Choice
        name="Links per word"
        value={String(filter.top)}
        options={{ 0: "all", 1: "1", 3: "3", 5: "5" }}
        choose={(top) => set({ top: Number(top) })}
      />
      {hasPair && (
        <Choice
          name="Sentences"
          value={filter.pairs}
          options={PAIRS}
          choose={(pairs) => set({ pairs })}
        />
      )}
      {hasWords && (
        <Choice
          name="Units"
          value={filter.unit}
          options={{ tokens: "tokens", words: "words" }}
          choose={(unit) => set({ unit })}
        />
      )}
      <Choice
        name="Combine heads"
        value={filter.combine}
        options={{ off: "off", layer: "layer", all: "all" }}
        choose={(combine) => set({ combine })}
      />
      <p class="mut">
        The filter changes no number, but “hidden” rescales what each word reads to 1. Attention to
        a word of several tokens is added up; attention from it is averaged.
      </p>
      <button
        type="button"
        class="b"
        onClick={() => session.update({ filter: NO_FILTER, role: "" })}
      >
        Clear
      </button>
    </div>
  );
}

interface ChoiceProps<T extends string> {
  readonly name: string;
  readonly value: T;
  readonly options: Readonly<Record<T, string>>;
  choose(value: T): void;
}

function Choice<T extends string>({ name, value, options, choose }: ChoiceProps<T>) {
  const listed = Object.entries(options) as [T, string][];
  return (
    <div class="field">
      <span>{name}</span>
      <Segments label={name} value={value} options={listed} choose={choose} />
    </div>
  );
}
