// Toolbar: model, blocks, examples, and the search, filter and export popovers.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { LivePart } from "../../generated/payload.ts";
import { type Filter, NO_FILTER } from "../data/filtered_block.ts";
import type { LiveStatus } from "../data/live.ts";
import { Button, classes, Logo, Segments, Select } from "./controls.tsx";
import { useExplorer, useSession } from "./explorer_context.ts";
import { ExportMenu } from "./export_menu.tsx";
import { nextTheme } from "./keyboard.ts";
import { Search } from "./search.tsx";
import { MAX_CHIPS } from "./sentence.tsx";
import { goTo } from "./story.tsx";

const PLACES = { file: "recorded run", notebook: "notebook", lab: "lab" } as const;

export function Toolbar() {
  const explorer = useExplorer();
  const { session } = explorer;
  const side = session.sides.value[0];
  const { place, examples, steps } = session.header;
  const { story: step, filter, example, theme } = session.selection.value;
  const asked = session.exercise.asked.value !== null;
  return (
    <header class="bar">
      <h1 class="logo">
        <Logo />
        <span>headscope</span>
      </h1>
      <span class="model roomy">{side.base.model}</span>
      <span class="mut spacious">
        {side.block.layers.length} layers × {side.block.heads} heads
      </span>
      {place === "live" ? (
        <LiveBadge />
      ) : (
        <span class="where spacious">
          {place === "lab" && <i />}
          {PLACES[place]}
        </span>
      )}
      <BlockChoice />
      <span class="gap" />
      {examples.length > MAX_CHIPS && !steps && (
        <Select
          kind="b roomy"
          label="Example"
          value={String(example)}
          options={examples.map(({ title }, i) => [String(i), title])}
          choose={(value) => session.update({ example: Number(value) })}
        />
      )}
      {session.store.story.length > 0 && (
        <Button class="b" aria-pressed={step > 0} onClick={() => goTo(session, 1)}>
          ▸ Tour
        </Button>
      )}
      {session.exercise.questions.length > 0 && (
        <Button
          class="b roomy"
          aria-pressed={asked}
          onClick={() => session.exercise.open(asked ? 0 : 1)}
        >
          Your turn
        </Button>
      )}
      <Opener name="find" label="Find">
        <Search />
      </Opener>
      <Opener name="filter" label="Filter" about={describeFilter(filter)}>
        <FilterPopover />
      </Opener>
      <Opener name="export" label="Export ▾" kind="menu">
        <ExportMenu />
      </Opener>
      <Button class="b" aria-label={`Theme: ${theme}`} onClick={() => nextTheme(session)}>
        ◐
      </Button>
      <Button
        class="b"
        aria-label="Help"
        aria-haspopup="dialog"
        onClick={() => explorer.toggle("help")}
      >
        ?
      </Button>
    </header>
  );
}

/** State of the model inside the page, in words; a phone has short ones. */
function LiveBadge() {
  const explorer = useExplorer();
  const { session } = explorer;
  const { live } = session.header;
  const model = session.backend?.model;
  if (!live || !model) return null;
  const status = model.status.value;
  const { long, short, about } = badgeOf(status, live, model.typing.value);
  const share = status.state === "loading" ? status.read / status.total : 0;
  const isBusy = status.state === "loading" || status.state === "computing";
  const isOpen = explorer.open.value === "live";
  return (
    <span class="anchor">
      <span class={`live-badge ${status.state}`} role="status" aria-busy={isBusy} title={about}>
        <i aria-hidden="true" />
        <Button
          class="about"
          aria-haspopup="dialog"
          aria-expanded={isOpen}
          onClick={() => explorer.toggle("live")}
        >
          <span class="long">{long}</span>
          <span class="short">{short}</span>
        </Button>
        {status.state === "waiting" && (
          <Button class="plain" onClick={() => void model.start().catch(() => {})}>
            load
          </Button>
        )}
        {status.state === "loading" && <progress max={1} value={share} aria-label="Model loaded" />}
        {status.state === "computing" && <Seconds since={status.since} />}
      </span>
      {isOpen && (
        <div class="pop" role="dialog" aria-label="The model in this page">
          {about}
        </div>
      )}
    </span>
  );
}

function badgeOf(
  status: LiveStatus,
  live: LivePart,
  typing: string,
): Record<"long" | "short" | "about", string> {
  const memory = `${(live.memory / 1e9).toFixed(1)} GB of memory`;
  const { storage_maps: maps, storage_output: output } = live.proof;
  const digits = (value: number) => value.toExponential(0).replace("e-", "e−");
  const size = (bytes: number) => Math.round(bytes / 1e6);
  switch (status.state) {
    case "waiting":
      return {
        long: `the model takes ${size(live.bytes)} MB, ${memory}`,
        short: `${size(live.bytes)} MB`,
        about: `The model was not loaded: it takes about ${memory} in this tab.`,
      };
    case "loading": {
      const [read, total] = [size(status.read), size(status.total)];
      const isWhole = status.read >= status.total;
      return {
        long: isWhole
          ? `checking the model, ${memory}`
          : `loading the model · ${read} of ${total} MB, ${memory}`,
        short: isWhole ? "checking" : `${read} / ${total} MB`,
        about: `The model takes about ${memory} in this tab.`,
      };
    }
    case "ready":
      return {
        long: `runs in this page · checked ${digits(status.difference)}`,
        short: "live",
        about:
          `Checked ${digits(status.difference)}: attention and output differ by at most that from those of the export. ` +
          `Weights are stored as ${live.storage}: that changes attention by up to ` +
          `${digits(maps)}, the output by ${digits(output)}. About ${memory} in this tab.` +
          (typing && ` Texts cannot be typed: ${typing}.`),
      };
    case "computing":
      return { long: "computing", short: "live", about: "The model runs in this page." };
    case "refused":
      return {
        long: `not live: ${status.reason}`,
        short: "not live",
        about: `The model does not run: ${status.reason}. Stored numbers hold.`,
      };
  }
}

/** Seconds since a run began; nothing for a short one. */
function Seconds({ since }: { since: number }) {
  const [now, setNow] = useState(since);
  useEffect(() => {
    const timer = setInterval(() => setNow(performance.now()), 200);
    return () => clearInterval(timer);
  }, [since]);
  return now > since ? <span class="long"> · {((now - since) / 1000).toFixed(1)} s</span> : null;
}

interface OpenerProps {
  readonly name: string;
  readonly label: string;
  readonly about?: string;
  readonly kind?: "dialog" | "menu";
  readonly children: ComponentChildren;
}

/** Button, and the popover that it opens. Phones have no menus. */
function Opener({ name, label, about, kind = "dialog", children }: OpenerProps) {
  const explorer = useExplorer();
  const isOpen = explorer.open.value === name;
  return (
    <span class={classes("anchor", kind === "menu" && "roomy")}>
      <Button
        class="b"
        aria-haspopup={kind}
        aria-expanded={isOpen}
        onClick={() => explorer.toggle(name)}
      >
        {label}
        {about && <span class="mut spacious"> · {about}</span>}
      </Button>
      {isOpen && children}
    </span>
  );
}

const BLOCKS: Record<string, string> = {
  self: "attention",
  encoder: "encoder",
  decoder: "decoder",
  cross: "decoder reads encoder",
  vision: "image",
  audio: "sound",
};

/** Choice of a block, if the model has several. */
function BlockChoice() {
  const session = useSession();
  const { blocks } = session.sides.value[0].now;
  if (blocks.length < 2) return null;
  return (
    <Select
      kind="b"
      label="Attention"
      value={session.selection.value.block}
      options={blocks.map(({ name }) => [name, BLOCKS[name] ?? name])}
      choose={(block) => session.update({ block, word: null, key: null })}
    />
  );
}

function describeFilter(filter: Filter): string {
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

function FilterPopover() {
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
      <Button class="b" onClick={() => session.update({ filter: NO_FILTER, role: "" })}>
        Clear
      </Button>
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
