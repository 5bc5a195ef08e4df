// Neurons tab: q, k, q×k, the sum and the weight, with one sum worked out.

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ScoreSum } from "../../generated/payload.ts";
import { RequestError } from "../data/backend.ts";
import { formatNumber, formatSigned, formatWeight } from "../data/format.ts";
import { type Neurons, neuronOrder } from "../data/neurons.ts";
import { type Entry, printed } from "../data/tokens.ts";
import { neuronLayout, neuronMarks, queryStrip, workedSum } from "../layout/neurons_layout.ts";
import { labelEms } from "../paint/painter.ts";
import type { Side } from "../state/session.ts";
import { Button, Command, Drawing, px, Segments } from "./controls.tsx";
import { reveal, useExplorer, useSession, useSize } from "./explorer_context.ts";
import { headColor, neuronsAt } from "./selected_head.ts";

export function NeuronsTab() {
  const session = useSession();
  const side = session.lead.value;
  const { layer, head, word } = session.selection.value;
  const { row } = session.focus(side);
  const { ref, width, height } = useSize<HTMLDivElement>();
  const lazy = session.vectors(side);
  const planes = side.block.planes[session.layerIndex(side.block)];
  const query = row >= 0 ? side.filtered.rows[row].positions[0] : lastWord(side);
  const neurons = useMemo(
    () => neuronsAt(session, side, query),
    [lazy?.value, planes?.value, head, query],
  );
  let note = "";
  const stored = [...side.block.vectors.keys()].join(", ") || "none";
  if (!session.header.command) note = "This page was made from attention alone.";
  else if (!lazy)
    note = `Layers that are: ${stored}. Save the page with neurons=[${layer}], or live:`;
  else if (lazy.error.value) note = lazy.error.value;
  else if (!neurons) note = "Fetching the vectors of this layer …";
  return (
    <div class="neurons" ref={ref}>
      {note && (
        <div class="note">
          {!lazy && <b>The vectors of layer {layer} are not in this file. </b>}
          {note} {!lazy && session.header.command && <Command text={session.header.command} />}
        </div>
      )}
      {neurons && width > 0 && (
        <Strips
          side={side}
          neurons={neurons}
          width={width}
          height={height}
          isPinned={word !== null}
        />
      )}
    </div>
  );
}

/** Height of the query's strip in the heading, which stays in view. */
const QUERY = 9;

function lastWord(side: Side): number {
  const entry =
    side.filtered.rows.filter(({ special }) => !special).at(-1) ?? side.filtered.rows[0];
  return entry?.positions[0] ?? 0;
}

interface StripsProps {
  readonly side: Side;
  readonly neurons: Neurons;
  readonly width: number;
  readonly height: number;
  readonly isPinned: boolean;
}

function Strips({ side, neurons, width, height, isPinned }: StripsProps) {
  const explorer = useExplorer();
  const { session } = explorer;
  const theme = session.theme.value;
  const [order, setOrder] = useState<"number" | "contribution">("number");
  const { filtered } = side;
  // Vectors belong to tokens: words of several tokens are shown by their first.
  const [rows, keys] = [filtered.rows, filtered.columns];
  const isPhone = session.layout.value === "phone";
  const layout = useMemo(
    () =>
      neuronLayout(
        { width, height: height - 156 },
        Math.max(rows.length, keys.length),
        { rows: labelEms(rows), keys: labelEms(keys) },
        isPhone ? 32 : 16,
      ),
    [filtered, width, height, isPhone],
  );
  const { column } = session.focus(side);
  const chosen = column >= 0 ? keys[column].positions[0] : strongest(neurons, keys);
  const color = headColor(session, side);
  const neuronNumbers = useMemo(() => neuronOrder(neurons, order), [neurons, order]);
  const marks = useMemo(
    () => neuronMarks({ neurons, rows, keys, chosen, order: neuronNumbers, color }, layout, theme),
    [neurons, filtered, chosen, neuronNumbers, color.join(), layout, theme],
  );
  const held = layout.key ?? layout.product;
  const queryMarks = useMemo(
    () => queryStrip(neurons, neuronNumbers, { width: held.width, height: QUERY }, theme),
    [neurons, neuronNumbers, held.width, theme],
  );
  const strips = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const strip = strips.current?.querySelector<HTMLElement>("[aria-selected=true]");
    const box = strips.current?.closest<HTMLElement>(".neurons");
    if (strip && box) reveal(box, strip, 60);
  }, [chosen, layout]);
  const reader = printed(side.block.queryTokens.texts[neurons.query]);
  const heads: [string, string, { x: number; width: number } | null][] = [
    ["query q", `what “${reader}” asks for`, layout.query],
    ["key k", "what each word offers", layout.key && layout.word],
    ["q × k", "products", layout.product],
    ["q · k", "sum", layout.sum],
    ["softmax", "share read", layout.share],
  ];
  return (
    <>
      <div class="strips-heading">
        {heads.map(([name, hint, box], i) =>
          box ? (
            <span
              key={name}
              style={px({ left: box.x, width: roomOf(box.x, heads.slice(i + 1), layout.width) })}
            >
              <b>{name}</b>
              <small>{hint}</small>
            </span>
          ) : null,
        )}
        <div
          class="query-strip"
          title={`q of “${reader}”, above the keys that it meets`}
          style={px({ left: held.x, width: held.width })}
        >
          <Drawing marks={queryMarks} width={held.width} height={QUERY} />
        </div>
      </div>
      <div class="strips" ref={strips}>
        <Drawing marks={marks} width={layout.width} height={layout.height} />
        <div role="listbox" aria-label={`What ${reader} reads`}>
          {keys.map((entry, i) => (
            <Button
              key={entry.positions[0]}
              role="option"
              class="strip"
              aria-selected={entry.positions.includes(chosen)}
              aria-label={`${printed(entry.label)}: q·k ${formatNumber(neurons.dots[entry.positions[0]])}, share ${formatWeight(neurons.weights[entry.positions[0]], "fine")}`}
              style={px({
                top: layout.top + i * layout.rowHeight,
                height: layout.rowHeight,
                left: layout.word.x - 6,
              })}
              onClick={() => {
                const now = session.selection.peek().key;
                const position = entry.positions[0];
                session.update({
                  key: now === position ? null : position,
                  ...(isPinned ? {} : { word: neurons.query }),
                });
              }}
              onPointerMove={(event) => neuronNote(event, entry)}
              onPointerLeave={explorer.hideTip}
            />
          ))}
        </div>
      </div>
      <WorkedOut side={side} neurons={neurons} chosen={chosen} />
      <div class="do">
        <Segments<"number" | "contribution">
          label="Order of neurons"
          value={order}
          options={[
            ["number", "neurons by number"],
            ["contribution", "by contribution"],
          ]}
          choose={setOrder}
        />
        <Why side={side} query={neurons.query} chosen={chosen} />
      </div>
    </>
  );

  function neuronNote(event: PointerEvent, entry: Entry): void {
    const box = (event.currentTarget as HTMLElement).parentElement!.getBoundingClientRect();
    const x = event.clientX - box.left;
    const strip = [layout.key, layout.product].find(
      (strip) => strip && x >= strip.x && x < strip.x + strip.width,
    );
    if (!strip) {
      explorer.hideTip();
      return;
    }
    const neuron = neuronNumbers[Math.floor(((x - strip.x) / strip.width) * neuronNumbers.length)];
    const key = entry.positions[0];
    explorer.showTip(event, `neuron ${neuron}`, [
      [`q of ${reader}`, formatNumber(neurons.q[neuron])],
      [`k of ${printed(entry.label)}`, formatNumber(neurons.keys[key][neuron])],
      ["q × k", formatSigned(neurons.products[key][neuron])],
    ]);
  }
}

/** Width from a heading to the next one. */
function roomOf(
  x: number,
  later: readonly (readonly [string, string, { x: number } | null])[],
  width: number,
): number {
  const next = later.find(([, , box]) => box !== null)?.[2];
  return Math.max(20, (next ? next.x : width) - x - 6);
}

function strongest(neurons: Neurons, keys: readonly Entry[]): number {
  const telling = keys.filter(({ special, positions }) => !special && positions[0] > 0);
  const all = telling.length > 0 ? telling : keys;
  return all.reduce(
    (best, { positions: [key] }) =>
      (neurons.weights[key] || 0) > (neurons.weights[best] || 0) ? key : best,
    all[0]?.positions[0] ?? 0,
  );
}

function WorkedOut({ side, neurons, chosen }: { side: Side; neurons: Neurons; chosen: number }) {
  const worked = workedSum(neurons, chosen);
  const { block } = side;
  const names = [block.queryTokens.texts[neurons.query], block.keyTokens.texts[chosen]].map(
    printed,
  );
  if (Number.isNaN(worked.score)) {
    return (
      <p class="worked">
        <b>
          {names[0]} → {names[1]}
        </b>
        : hidden; a word sees none that come after it.
      </p>
    );
  }
  const list = worked.most.map(({ neuron }) => neuron).join(", ");
  const products = worked.most.map(({ product }) => formatSigned(product)).join(", ");
  return (
    <p class="worked">
      <b>
        {names[0]} → {names[1]}
      </b>
      , worked out: <span class="up">+{formatNumber(worked.up)}</span>{" "}
      <span class="dn">− {formatNumber(-worked.down)}</span> = <b>{formatNumber(worked.dot)}</b>
      {worked.scale !== null && (
        <>
          {" "}
          × {Number(worked.scale.toPrecision(3))} = {formatNumber(worked.dot * worked.scale)}
        </>
      )}
      {worked.bias !== null && Math.abs(worked.bias) > 5e-4 && (
        <>
          {" "}
          {formatSigned(worked.bias)} bias = {formatNumber(worked.score)}
        </>
      )}{" "}
      {worked.total === null ? (
        "→ softmax"
      ) : (
        <>
          → e<sup>{formatNumber(worked.score)}</sup> / {formatNumber(worked.total)}
        </>
      )}{" "}
      = <b>{formatWeight(worked.weight, "fine")}</b>. Neurons {list} bring the most ({products}).
    </p>
  );
}

/** Score as a sum over the terms of the residual stream. */
function Why({ side, query, chosen }: { side: Side; query: number; chosen: number }) {
  const session = useSession();
  const { layer, head } = session.selection.value;
  const [answer, setAnswer] = useState<{ for: string; sum: ScoreSum | null; words: string } | null>(
    null,
  );
  const id = `${side.trace}/${layer}/${head}/${query}/${chosen}`;
  const { backend } = session;
  if (!backend || !session.can.score) {
    return <span class="mut">“Why did it look there?” needs the model: ask in the lab.</span>;
  }
  const request = async () => {
    setAnswer({ for: id, sum: null, words: "Taking the score apart …" });
    try {
      const sum = await backend.score(side.trace, { layer, head, query, key: chosen });
      setAnswer({ for: id, sum, words: "" });
    } catch (error) {
      const words = error instanceof RequestError ? error.message : String(error);
      setAnswer({ for: id, sum: null, words });
    }
  };
  const shown = answer?.for === id ? answer : null;
  const most = Math.max(1e-9, ...(shown?.sum?.parts.map((part) => Math.abs(sizeOf(part))) ?? []));
  return (
    <div class="why">
      <Button class="b" onClick={() => void request()}>
        Why did it look there?
      </Button>
      {shown?.words && <span class="mut">{shown.words}</span>}
      {shown?.sum && (
        <table>
          <caption>
            The score is {formatSigned(shown.sum.total)} against {shown.sum.against}; it is made of
          </caption>
          <tbody>
            {shown.sum.parts.slice(0, 8).map((part) => (
              <tr key={part.name}>
                <th scope="row">{part.name}</th>
                <td class="num">{formatSigned(sizeOf(part))}</td>
                <td>
                  <i
                    class={sizeOf(part) >= 0 ? "up" : "down"}
                    style={px({ width: (90 * Math.abs(sizeOf(part))) / most })}
                  />
                </td>
                <td class="mut">
                  {Math.abs(part.query_side) >= Math.abs(part.key_side)
                    ? "as what is asked for"
                    : "as what is offered"}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </div>
  );
}

function sizeOf(part: ScoreSum["parts"][number]): number {
  return Math.abs(part.query_side) >= Math.abs(part.key_side) ? part.query_side : part.key_side;
}
