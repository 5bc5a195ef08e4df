// Edits of the model: heads off, one weight set, a neuron scaled.

import { useEffect, useState } from "preact/hooks";
import { rowWeights } from "../data/filtered_block.ts";
import { shortWeight } from "../data/format.ts";
import { type Entry, printed, rowOf } from "../data/tokens.ts";
import { blockOf, type Edit, headName, isSameHead } from "../state/selection.ts";
import type { Side } from "../state/session.ts";
import { Button, Command } from "./controls.tsx";
import { useSession } from "./explorer_context.ts";

export function Edits({ side }: { side: Side }) {
  const session = useSession();
  const selection = session.selection.value;
  const { edits, layer, head } = selection;
  const { header, can } = session;
  if (!can.off) {
    const off = session.edits.onlyOff;
    const isStored = session.canSwitch(side);
    const state = session.backend?.model?.status.value.state;
    const willRun = state === "loading" || state === "waiting";
    return (
      <>
        <h2 class="sec">Edits</h2>
        {off && isStored && (
          <div class="chips">
            <span class="chip">
              {headName(off)} off
              <Button
                aria-label={`Remove ${headName(off)} off`}
                onClick={() => session.update({ edits: [] })}
              >
                ×
              </Button>
            </span>
          </div>
        )}
        <div class="note">
          {!header.command && !header.live
            ? "This page was made from attention alone: there is no model to change."
            : isStored
              ? "This file holds the runs without one head: switch one off and see what changes. "
              : willRun
                ? ""
                : header.live
                  ? "The model does not run in this page. "
                  : "A saved file cannot run the model. "}
          {willRun &&
            "Several heads, single weights and other texts: as soon as the model is loaded."}
          {!willRun && header.command && (
            <>
              Several heads, single weights, neurons and other texts: in the lab.
              <Command text={header.command} />
            </>
          )}
        </div>
      </>
    );
  }
  const isOff = session.edits.isOff(selection);
  return (
    <>
      <h2 class="sec">
        Edits{" "}
        {edits.length === 0 ? (
          <small>change the model, see what follows</small>
        ) : (
          <small>
            {edits.length} on ·{" "}
            <Button class="plain" onClick={() => session.update({ edits: edits.slice(0, -1) })}>
              ↶ Undo
            </Button>{" "}
            <Button class="plain" onClick={() => session.update({ edits: [] })}>
              Clear
            </Button>
          </small>
        )}
      </h2>
      <div class="chips">
        {edits.map((edit) => (
          <span class="chip" key={JSON.stringify(edit)}>
            {editText(edit, side)}
            <Button
              aria-label={`Remove ${editText(edit, side)}`}
              onClick={() => session.edits.remove(edit)}
            >
              ×
            </Button>
          </span>
        ))}
      </div>
      <div class="do">
        {!isOff && (
          <Button class="b" onClick={() => session.edits.toggleOff({ layer, head }, true)}>
            Switch {headName(selection)} off
          </Button>
        )}
      </div>
      {!isOff && can.cell && <CellSlider side={side} />}
      {can.neuron && <NeuronSlider />}
    </>
  );
}

function editText(edit: Edit, { now }: Side): string {
  const block = blockOf(now, edit.block);
  const name = (now.blocks.length > 1 ? `${edit.block} ` : "") + headName(edit);
  if (edit.kind === "off") return `${name} off`;
  if (edit.kind === "neuron") return `${name}: neuron ${edit.neuron} × ${edit.factor}`;
  const [from, to] = [block.queryTokens.texts[edit.query], block.keyTokens.texts[edit.key]];
  return `${name}: ${printed(from ?? "")} → ${printed(to ?? "")} = ${edit.weight}`;
}

/** Set one weight by dragging; the rest of the row keeps its proportions. */
function CellSlider({ side }: { side: Side }) {
  const session = useSession();
  const { layer, head, word, key, block, edits, filter } = session.selection.value;
  const { rows, columns } = side.filtered;
  const matrix = session.matrix(side);
  const [dragged, setDragged] = useState<number | null>(null);
  useEffect(() => setDragged(null), [layer, head, word, key]);
  const row = rowOf(rows, word);
  if (word === null || row < 0 || !matrix || filter.unit === "words") return null;
  const weights = rowWeights(matrix, row);
  const rowEdits = edits.flatMap((edit) =>
    edit.kind === "cell" &&
    edit.block === block &&
    isSameHead(edit, { layer, head }) &&
    edit.query === word
      ? [edit]
      : [],
  );
  // A weight that was set stays selected: at 0, another would be the strongest.
  const strongest = columns[strongestContent(columns, weights)]?.positions[0];
  const read = key ?? rowEdits.at(-1)?.key ?? strongest;
  const column = rowOf(columns, read);
  if (column < 0 || read === undefined) return null;
  const set = rowEdits.find((edit) => edit.key === read);
  const now = dragged ?? set?.weight ?? weights[column];
  return (
    <label class="slider">
      <span>
        {printed(rows[row].label)} → {printed(columns[column].label)}
      </span>
      <input
        type="range"
        min="0"
        max="1"
        step="0.01"
        value={now}
        onInput={(event) => setDragged(Number(event.currentTarget.value))}
        onChange={(event) => {
          const weight = Number(event.currentTarget.value);
          session.edits.add({ kind: "cell", block, layer, head, query: word, key: read, weight });
        }}
      />
      <b class="num">{shortWeight(now)}</b>
    </label>
  );
}

function strongestContent(columns: readonly Entry[], row: Float32Array): number {
  let best = 0;
  columns.forEach(({ special, positions }, i) => {
    const isContent = !special && positions[0] > 0;
    if (isContent && (row[i] > row[best] || columns[best].positions[0] === 0)) best = i;
  });
  return best;
}

/** Scale one neuron of the head's queries and keys. */
function NeuronSlider() {
  const session = useSession();
  const { layer, head, tab, block } = session.selection.value;
  const [neuron, setNeuron] = useState(0);
  const [factor, setFactor] = useState(1);
  if (tab !== "neurons") return null;
  return (
    <label class="slider">
      <span>
        neuron{" "}
        <input
          class="number"
          type="number"
          min="0"
          aria-label="Neuron"
          value={neuron}
          onChange={(event) => setNeuron(Math.max(0, Number(event.currentTarget.value) || 0))}
        />
      </span>
      <input
        type="range"
        min="0"
        max="2"
        step="0.1"
        aria-label={`Factor on neuron ${neuron}`}
        value={factor}
        onInput={(event) => setFactor(Number(event.currentTarget.value))}
        onChange={(event) =>
          session.edits.add({
            kind: "neuron",
            block,
            layer,
            head,
            neuron,
            factor: Number(event.currentTarget.value),
          })
        }
      />
      <b class="num">× {factor}</b>
    </label>
  );
}
