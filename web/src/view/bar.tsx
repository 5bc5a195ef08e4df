// The bar on top: which model, where the page stands, and what can be done with it.

import type { ComponentChildren } from "preact";
import { useHere, useSession } from "./context.ts";
import { ExportMenu } from "./export_menu.tsx";
import { describeFilter, FilterPopover } from "./filter.tsx";
import { Find } from "./find.tsx";
import { nextTheme } from "./keyboard.ts";
import { classes } from "./parts.tsx";
import { goTo } from "./story.tsx";

const PLACES = { file: "saved file", notebook: "notebook", lab: "lab" } as const;

export function Bar() {
  const here = useHere();
  const { session } = here;
  const side = session.sides.value[0];
  const { place, examples } = session.header;
  const { story: step, filter, example, theme } = session.selection.value;
  return (
    <header class="bar">
      <h1 class="logo">
        <svg width="18" height="18" viewBox="0 0 18 18" aria-hidden="true">
          <path d="M2 15C2 3 16 3 16 15" />
          <path class="inner" d="M2 15C2 9.5 9 9.5 9 15" />
          <circle cx="2" cy="15" r="1.4" />
          <circle cx="9" cy="15" r="1.4" />
          <circle cx="16" cy="15" r="1.4" />
        </svg>
        headscope
      </h1>
      <span class="model roomy">{side.base.model}</span>
      <span class="mut spacious">
        {side.block.layers.length} layers × {side.block.heads} heads
      </span>
      <span class="where">
        {place === "lab" && <i />}
        {PLACES[place]}
      </span>
      <BlockChoice />
      <span class="gap" />
      {examples.length > 1 && (
        <select
          class="b roomy"
          aria-label="Example"
          value={String(example)}
          onChange={(event) => session.update({ example: Number(event.currentTarget.value) })}
        >
          {examples.map(({ title }, i) => (
            <option key={title} value={String(i)}>
              {title}
            </option>
          ))}
        </select>
      )}
      {step < 0 && (
        <button type="button" class="b roomy" onClick={() => goTo(session, 1)}>
          ▸ Tour
        </button>
      )}
      <Opener name="find" label="Find">
        <Find />
      </Opener>
      <Opener name="filter" label="Filter" about={describeFilter(filter)}>
        <FilterPopover />
      </Opener>
      <Opener name="export" label="Export ▾" kind="menu">
        <ExportMenu />
      </Opener>
      <button
        type="button"
        class="b"
        aria-label={`Theme: ${theme}`}
        onClick={() => nextTheme(session)}
      >
        ◐
      </button>
      <button
        type="button"
        class="b"
        aria-label="Help"
        aria-haspopup="dialog"
        onClick={() => here.toggle("help")}
      >
        ?
      </button>
    </header>
  );
}

interface OpenerProps {
  readonly name: string;
  readonly label: string;
  /** What is on, where there is room to say it. */
  readonly about?: string;
  readonly kind?: "dialog" | "menu";
  readonly children: ComponentChildren;
}

/** A button, and the popover that it opens. Phones have no menus. */
function Opener({ name, label, about, kind = "dialog", children }: OpenerProps) {
  const here = useHere();
  const isOpen = here.open.value === name;
  return (
    <span class={classes("anchor", kind === "menu" && "roomy")}>
      <button
        type="button"
        class="b"
        aria-haspopup={kind}
        aria-expanded={isOpen}
        onClick={() => here.toggle(name)}
      >
        {label}
        {about && <span class="mut spacious"> · {about}</span>}
      </button>
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

/** Which attention of a model with several. */
function BlockChoice() {
  const session = useSession();
  const { blocks } = session.sides.value[0].now;
  if (blocks.length < 2) return null;
  return (
    <select
      class="b"
      aria-label="Attention"
      value={session.selection.value.block}
      onChange={(event) =>
        session.update({ block: event.currentTarget.value, word: null, key: null })
      }
    >
      {blocks.map(({ name }) => (
        <option key={name} value={name}>
          {BLOCKS[name] ?? name}
        </option>
      ))}
    </select>
  );
}
