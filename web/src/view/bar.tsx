// The bar on top: which model, where the page stands, and what can be done with it.

import { useHere } from "./context.ts";
import { ExportMenu } from "./export_menu.tsx";
import { describeFilter, FilterPopover } from "./filter.tsx";
import { Find } from "./find.tsx";
import { nextTheme } from "./keyboard.ts";

const PLACES = { file: "saved file", notebook: "notebook", lab: "lab" } as const;

export function Bar() {
  const here = useHere();
  const { session } = here;
  const side = session.sides.value[0];
  const { place, story, examples } = session.header;
  const { story: step, filter, example } = session.selection.value;
  const on = describeFilter(filter);
  const toggle = (name: string) => {
    here.open.value = here.open.value === name ? "" : name;
  };
  const layers = side.block.layers.length;
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
      <span class="mut roomy">
        {layers} layers × {side.block.heads} heads
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
      {story.length > 0 && step < 0 && (
        <button type="button" class="b roomy" onClick={() => session.update({ story: 0 })}>
          ▸ Tour
        </button>
      )}
      <span class="anchor">
        <button
          type="button"
          class="b"
          aria-haspopup="dialog"
          aria-expanded={here.open.value === "find"}
          onClick={() => toggle("find")}
        >
          Find
        </button>
        {here.open.value === "find" && <Find />}
      </span>
      <span class="anchor">
        <button
          type="button"
          class="b"
          aria-haspopup="dialog"
          aria-expanded={here.open.value === "filter"}
          onClick={() => toggle("filter")}
        >
          Filter
          <span class="mut roomy"> · {on}</span>
        </button>
        {here.open.value === "filter" && <FilterPopover />}
      </span>
      <span class="anchor roomy">
        <button
          type="button"
          class="b"
          aria-haspopup="menu"
          aria-expanded={here.open.value === "export"}
          onClick={() => toggle("export")}
        >
          Export ▾
        </button>
        {here.open.value === "export" && <ExportMenu />}
      </span>
      <button
        type="button"
        class="b"
        aria-label={`Theme: ${session.selection.value.theme}`}
        onClick={() => nextTheme(session)}
      >
        ◐
      </button>
      <button
        type="button"
        class="b"
        aria-label="Help"
        aria-haspopup="dialog"
        onClick={() => toggle("help")}
      >
        ?
      </button>
    </header>
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
  const { session } = useHere();
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
