// Changes of the model: heads off, one weight set by dragging, a neuron scaled; each taken back.

import { useEffect, useState } from "preact/hooks";
import { printed } from "../data/axis.ts";
import { shortWeight } from "../data/number.ts";
import { type Edit, headName, isSameHead } from "../state/selection.ts";
import type { Side } from "../state/session.ts";
import { useSession } from "./context.ts";

export function Edits({ side }: { side: Side }) {
  const session = useSession();
  const selection = session.selection.value;
  const { edits } = selection;
  const { asker, header } = session;
  if (!asker) {
    return (
      <>
        <h2 class="sec">Edits</h2>
        <div class="note">
          <b>A saved file cannot run the model.</b> To switch heads off, set weights or scale
          neurons, open this text in the lab:
          <br />
          <code>{header.command}</code>
        </div>
      </>
    );
  }
  const isOff = session.isOff(selection);
  return (
    <>
      <h2 class="sec">
        Edits{" "}
        {edits.length === 0 ? (
          <small>change the model, see what follows</small>
        ) : (
          <small>
            {edits.length} on ·{" "}
            <button
              type="button"
              class="plain"
              onClick={() => session.update({ edits: edits.slice(0, -1) })}
            >
              ↶ Undo
            </button>{" "}
            <button type="button" class="plain" onClick={() => session.update({ edits: [] })}>
              Clear
            </button>
          </small>
        )}
      </h2>
      <div class="chips">
        {edits.map((edit) => (
          <span class="chip" key={JSON.stringify(edit)}>
            {editText(edit, side)}
            <button
              type="button"
              aria-label={`Remove ${editText(edit, side)}`}
              onClick={() => session.removeEdit(edit)}
            >
              ×
            </button>
          </span>
        ))}
      </div>
      <div class="do">
        {!isOff && (
          <button
            type="button"
            class="b"
            onClick={() =>
              session.edit({ kind: "off", layer: selection.layer, head: selection.head })
            }
          >
            Switch {headName(selection)} off
          </button>
        )}
      </div>
      {!isOff && <CellSlider side={side} />}
      <NeuronSlider />
    </>
  );
}

function editText(edit: Edit, { block }: Side): string {
  const name = headName(edit);
  if (edit.kind === "off") return `${name} off`;
  if (edit.kind === "neuron") return `${name}: neuron ${edit.neuron} × ${edit.factor}`;
  const [from, to] = [block.queryTokens.texts[edit.query], block.keyTokens.texts[edit.key]];
  return `${name}: ${printed(from ?? "")} → ${printed(to ?? "")} = ${edit.weight}`;
}

/** Sets one weight by dragging; the rest of the row keeps its proportions. */
function CellSlider({ side }: { side: Side }) {
  const session = useSession();
  const { layer, head, word, key, block, edits } = session.selection.value;
  const matrix = session.matrix(side);
  const [dragged, setDragged] = useState<number | null>(null);
  useEffect(() => setDragged(null), [layer, head, word, key]);
  if (word === null || !matrix || session.selection.value.filter.unit === "words") return null;
  const row = side.lens.rows.findIndex(({ positions }) => positions.includes(word));
  const own = matrix.weights.subarray(row * matrix.columns, (row + 1) * matrix.columns);
  const read = key ?? side.lens.columns[strongestContent(side, own)]?.positions[0];
  const column = side.lens.columns.findIndex(({ positions }) => positions.includes(read ?? -1));
  if (row < 0 || column < 0 || read === undefined) return null;
  const set = edits.find(
    (one) =>
      one.kind === "cell" &&
      isSameHead(one, { layer, head }) &&
      one.query === word &&
      one.key === read,
  );
  const now = dragged ?? (set?.kind === "cell" ? set.weight : own[column]);
  const names = [side.lens.rows[row].label, side.lens.columns[column].label].map(printed);
  return (
    <label class="slider">
      <span>
        {names[0]} → {names[1]}
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
          session.edit({ kind: "cell", block, layer, head, query: word, key: read, weight });
        }}
      />
      <b class="num">{shortWeight(now)}</b>
    </label>
  );
}

function strongestContent(side: Side, row: Float32Array): number {
  let best = 0;
  side.lens.columns.forEach(({ special, positions }, i) => {
    const isContent = !special && positions[0] > 0;
    if (isContent && (row[i] > row[best] || side.lens.columns[best].positions[0] === 0)) best = i;
  });
  return best;
}

/** Scales one neuron of the head's queries and keys. */
function NeuronSlider() {
  const session = useSession();
  const { layer, head, tab } = session.selection.value;
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
          session.edit({
            kind: "neuron",
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
