// Wires between heads, drawn over the sentence: shares, certainty, the pairs behind each.

import type { CurvePart, WirePart, WiresPart } from "../../generated/payload.ts";
import { capital, formatNumber, percent, shortWeight, signed } from "../data/format.ts";
import { printed } from "../data/tokens.ts";
import { BOX_HEIGHT, type WireBox, type WireLine, wiresLayout } from "../layout/wires_layout.ts";
import { widestEms } from "../paint/painter.ts";
import { inkOn, roleColor } from "../paint/roles.ts";
import { type HeadId, headName } from "../state/selection.ts";
import { Button, Command, classes, consume, px } from "./controls.tsx";
import { useExplorer, useSession, useSize } from "./explorer_context.ts";
import { roleLookOf } from "./selected_head.ts";

const WORD_SIZE = 15;

export function WiresTab() {
  const part = useSession().wires.value;
  return part ? <Wires part={part} /> : <NoWires />;
}

function Wires({ part }: { part: WiresPart }) {
  const session = useSession();
  const { ref, width, height } = useSize<HTMLDivElement>();
  const chosen = part.wires[session.selection.value.wire - 1];
  return (
    <div class="wires">
      <div class="wires-drawing" ref={ref}>
        {width > 0 && <Diagram part={part} width={width} height={height} />}
      </div>
      <div class="wires-foot">
        {chosen ? <WireDetail part={part} wire={chosen} /> : <About part={part} />}
        {part.curve && (!chosen || width > 900) && <Curve curve={part.curve} />}
      </div>
    </div>
  );
}

/** Head that a wire starts at, and head of its reader with the largest share. */
export function headsOf(wire: WirePart): HeadId[] {
  const heads: HeadId[] = [];
  if (wire.source_head >= 0) heads.push({ layer: wire.source_layer, head: wire.source_head });
  const size = (head: number) => Math.abs(wire.by_head[`H${head}`] ?? 0);
  const [reader] = [...wire.reader_heads].sort((a, b) => size(b) - size(a));
  if (reader !== undefined) heads.push({ layer: wire.layer, head: reader });
  return heads;
}

function nameOf({ source, reader }: WirePart): string {
  return `${source} → ${reader}`;
}

/** Whether the interval of a wire contains 0, or the wire has none. */
function isUncertain({ low, high }: WirePart): boolean {
  return low === null || high === null || (low <= 0 && high >= 0);
}

function Diagram({ part, width, height }: { part: WiresPart; width: number; height: number }) {
  const session = useSession();
  const [tokens, others] = part.tokens.map((texts) => texts.map(printed));
  const layout = wiresLayout({
    ...{ part, width, height },
    textWidth: (at) => widestEms([tokens[at]], true) * WORD_SIZE,
  });
  const { wire: number } = session.selection.value;
  const hasIntervals = part.wires.some(({ low }) => low !== null);
  const choose = (index: number) => {
    const isNow = number === index + 1;
    const [first, ...also] = isNow ? [] : headsOf(part.wires[index]);
    session.update({ wire: isNow ? 0 : index + 1, ...(first ? { ...first, also } : {}) });
  };
  return (
    <svg
      class="wires-svg"
      width={layout.width}
      height={layout.height}
      role="group"
      aria-label={`The ${part.wires.length} largest wires`}
    >
      {layout.rows.map(({ text, y }) => (
        <g key={text}>
          <line class="rule" x1="48" x2={layout.width - 6} y1={y} y2={y} />
          <text class="layer" x="4" y={y + 4}>
            {text}
          </text>
        </g>
      ))}
      {layout.dotted.map(({ path }) => (
        <path key={path} class="reads" d={path} />
      ))}
      {layout.lines.map((line) => (
        <WirePath key={line.index} line={line} {...{ hasIntervals, number, choose }} />
      ))}
      {layout.boxes.map((box) => (
        <Box key={`${box.kind}${box.x}/${box.y}`} box={box} part={part} />
      ))}
      {layout.lines.map(
        ({ wire, index, label }) =>
          label && (
            <text
              key={index}
              class={classes("value num", wire.share > 0 ? "up" : "dn")}
              x={label.x}
              y={label.y + 4}
            >
              {signed(wire.share)}
            </text>
          ),
      )}
      {layout.words.map(({ position, x }) => {
        const isChanged = part.changed.includes(position);
        const y = layout.wordY + 18;
        const turn = layout.isTurned && position >= 0 ? `rotate(-40 ${x} ${y})` : undefined;
        return (
          <g key={x} class={classes("word-at", isChanged && "changed")} transform={turn}>
            <text x={x} y={y} text-anchor={turn ? "end" : "middle"}>
              {position < 0 ? "…" : tokens[position]}
              {isChanged && (
                <title>{`${tokens[position]}, in the other text ${others[position]}`}</title>
              )}
            </text>
            {isChanged && (
              <text class="other" x={x} y={y + 14} text-anchor={turn ? "end" : "middle"}>
                or {others[position]}
              </text>
            )}
          </g>
        );
      })}
    </svg>
  );
}

/** Handlers of a drawn button: a click, Enter and Space. */
function pressed(act: () => void) {
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    act();
    consume(event);
  };
  return { onClick: act, onKeyDown };
}

interface WirePathProps {
  readonly line: WireLine;
  readonly hasIntervals: boolean;
  readonly number: number;
  choose(index: number): void;
}

function WirePath({ line, hasIntervals, number, choose }: WirePathProps) {
  const explorer = useExplorer();
  const { wire, index, path } = line;
  const isOn = number === index + 1;
  const rows: [string, string][] = [["share of the gap", signed(wire.share)]];
  if (wire.low !== null && wire.high !== null)
    rows.push(["95 % interval", `${signed(wire.low)} to ${signed(wire.high)}`]);
  if (wire.stability !== null) rows.push(["stability", shortWeight(wire.stability)]);
  const say = rows.map((row) => row.join(" ")).join(", ");
  return (
    <g
      class={classes(
        "wire",
        wire.share > 0 ? "for" : "against",
        isOn && "on",
        number > 0 && !isOn && "off",
      )}
      role="button"
      tabindex={0}
      aria-pressed={isOn}
      aria-label={`${nameOf(wire)}, ${say}`}
      {...pressed(() => choose(index))}
      onPointerMove={(event) => explorer.showTip(event, nameOf(wire), rows)}
      onPointerLeave={explorer.hideTip}
    >
      <path class="catch" d={path} />
      <path
        class="line"
        d={path}
        stroke-width={line.width}
        stroke-opacity={wire.stability === null ? 0.6 : 0.25 + 0.7 * wire.stability}
        stroke-dasharray={hasIntervals && isUncertain(wire) ? "5 4" : undefined}
      />
    </g>
  );
}

function Box({ box, part }: { box: WireBox; part: WiresPart }) {
  const session = useSession();
  const side = session.lead.value;
  const { scheme } = session.theme.value;
  const { kind, x, y, width, text, layer, heads } = box;
  if (kind === "word") return null;
  const top = y - BOX_HEIGHT / 2;
  if (kind === "answer") {
    return (
      <text class="answer-at" x={x} y={y + 5} text-anchor="middle">
        <tspan class="target">{part.answers[0]}</tspan>
        <tspan class="foil"> over {part.answers[1]}</tspan>
      </text>
    );
  }
  if (kind === "input") {
    return (
      <g class="input">
        <circle cx={x} cy={y} r="10" />
        <text x={x} y={y + 4} text-anchor="middle">
          {text}
          <title>{`${text === "k" ? "keys" : "values"} of L${layer} H${heads.join(", H")}`}</title>
        </text>
      </g>
    );
  }
  if (kind === "mlp") {
    return (
      <g class="mlp">
        <rect x={x - width / 2} y={top} width={width} height={BOX_HEIGHT} rx="3" />
        <text x={x} y={y + 4} text-anchor="middle">
          {text}
        </text>
      </g>
    );
  }
  const id = { layer, head: heads[0] };
  const look = roleLookOf(session, side, id);
  const isHollow = look.id === "unnamed" || session.exercise.isHidden.value;
  const color = roleColor(look, scheme);
  return (
    <g
      class={classes("at-head", isHollow && "hollow")}
      role="button"
      tabindex={0}
      aria-label={`Show ${headName(id)}`}
      {...pressed(() => session.choose(id))}
    >
      <rect
        x={x - width / 2}
        y={top}
        width={width}
        height={BOX_HEIGHT}
        rx="5"
        style={isHollow ? {} : { fill: look[scheme] }}
      />
      <text x={x} y={y + 4} text-anchor="middle" style={isHollow ? {} : { fill: inkOn(color) }}>
        {!isHollow && width > 40 && `${look.symbol} `}
        {text}
      </text>
      <title>{`${headName(id)}: ${look.name}`}</title>
    </g>
  );
}

function About({ part }: { part: WiresPart }) {
  const [target, foil] = part.answers;
  return (
    <div class="wire-about">
      <h3>
        Which head feeds which, for {target} over {foil}
      </h3>
      <p class="mut">
        The {part.wires.length} largest of {part.exact} wires that were run, of{" "}
        {part.total.toLocaleString("en")}. A number is the share of the gap between the two texts
        that goes through the wire: <b class="up">+</b> for {target}, <b class="dn">−</b> against.
        Shares do not add up to 1.
      </p>
      <p class="mut">{capital(part.holds)}. Drawn where the first pair reads it. Choose a wire.</p>
    </div>
  );
}

function WireDetail({ part, wire }: { part: WiresPart; wire: WirePart }) {
  const session = useSession();
  const range =
    wire.low !== null && wire.high !== null ? ` [${signed(wire.low)}, ${signed(wire.high)}]` : "";
  const place = wire.at >= 0 ? printed(part.tokens[0][wire.at]) : "";
  const split = Object.entries(wire.by_head);
  const widest = Math.max(1e-9, ...split.map(([, value]) => Math.abs(value)));
  const facts = [
    wire.stability !== null && `chosen in ${percent(wire.stability)} of resamples`,
    wire.p !== null &&
      `p ${wire.p < 0.001 ? "< 0.001" : `= ${formatNumber(wire.p)}`} on other sentences (Holm)`,
    place && `read at “${place}”${wire.part !== null ? ` (${percent(wire.part)} of it)` : ""}`,
  ].filter(Boolean);
  return (
    <div class="wire-detail">
      <div>
        <h3>
          {nameOf(wire)}{" "}
          <b class={classes("num", wire.share > 0 ? "up" : "dn")}>{signed(wire.share)}</b>
          <span class="num">{range}</span>
        </h3>
        <p class="mut">
          {wire.share > 0 ? "For" : "Against"} {part.answers[0]}: share of the gap that closes when{" "}
          {wire.reader} alone gets {wire.source} of the other text. {capital(facts.join("; "))}.
        </p>
        <div class="do">
          {headsOf(wire).map((id) => (
            <Button
              key={headName(id)}
              class="b"
              onClick={() => session.update({ ...id, also: [], tab: "lines" })}
            >
              {headName(id)} alone
            </Button>
          ))}
          <Button class="b" onClick={() => session.update({ wire: 0, also: [] })}>
            All wires
          </Button>
        </div>
      </div>
      <PairDots part={part} wire={wire} />
      {split.length > 1 && (
        <table class="split" aria-label="Split by head">
          <tbody>
            {split.map(([head, value]) => (
              <tr key={head}>
                <th scope="row">
                  L{wire.layer} {head}
                </th>
                <td>
                  <i
                    class={value > 0 ? "pos" : "neg"}
                    style={px({ width: (56 * Math.abs(value)) / widest })}
                  />
                </td>
                <td class="num">{signed(value)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </div>
  );
}

const DOTS = { width: 230, height: 62, left: 10 };

/** Share in each pair, a row for each sentence; below, the mean with its interval. */
function PairDots({ part, wire }: { part: WiresPart; wire: WirePart }) {
  const explorer = useExplorer();
  const rows = Math.max(...part.templates) + 1;
  const bounds = [0, ...wire.values, wire.low ?? 0, wire.high ?? 0];
  const [low, high] = [Math.min(...bounds), Math.max(...bounds)];
  const x = (value: number) =>
    DOTS.left + ((DOTS.width - 2 * DOTS.left) * (value - low)) / Math.max(1e-9, high - low);
  const tone = wire.share > 0 ? "for" : "against";
  return (
    <figure class="pair-dots">
      <svg
        width={DOTS.width}
        height={DOTS.height + 18}
        role="img"
        aria-label={`Share in each of ${wire.values.length} pairs, from ${signed(Math.min(...wire.values))} to ${signed(Math.max(...wire.values))}`}
      >
        <line class="zero" x1={x(0)} x2={x(0)} y1="0" y2={DOTS.height} />
        {wire.values.map((value, i) => {
          const [text, contrast] = part.pairs[i];
          return (
            <circle
              key={i}
              class={tone}
              cx={x(value)}
              cy={5 + ((DOTS.height - 22) * (part.templates[i] + 0.5)) / rows}
              r="3.6"
              onPointerMove={(event) =>
                explorer.showTip(event, text, [
                  ["other text", contrast],
                  ["share", signed(value)],
                ])
              }
              onPointerLeave={explorer.hideTip}
            />
          );
        })}
        {wire.low !== null && wire.high !== null && (
          <line
            class="range"
            x1={x(wire.low)}
            x2={x(wire.high)}
            y1={DOTS.height - 6}
            y2={DOTS.height - 6}
          />
        )}
        <circle class="mean" cx={x(wire.share)} cy={DOTS.height - 6} r="4" />
        <text x={x(0)} y={DOTS.height + 12} text-anchor="middle">
          0
        </text>
        {Math.abs(x(wire.share) - x(0)) > 24 && (
          <text x={x(wire.share)} y={DOTS.height + 12} text-anchor="middle">
            {signed(wire.share)}
          </text>
        )}
      </svg>
      <figcaption class="mut">a dot for each pair, a row for each sentence</figcaption>
    </figure>
  );
}

const CURVE = { width: 206, height: 74, left: 26, bottom: 14 };

/** Faithfulness of the wires alone, by their share of all wires. */
function Curve({ curve }: { curve: CurvePart }) {
  const known = curve.k.flatMap((k, i) => {
    const value = curve.faithfulness[i];
    return value === null ? [] : [{ k, value }];
  });
  const low = Math.min(0, ...known.map(({ value }) => value));
  const high = Math.max(1, ...known.map(({ value }) => value));
  const first = Math.log10(curve.k[0]);
  const x = (k: number) =>
    CURVE.left + (CURVE.width - CURVE.left - 16) * (1 - Math.log10(k) / first);
  const y = (value: number) =>
    6 + (CURVE.height - CURVE.bottom - 6) * (1 - (value - low) / (high - low));
  const path = known.map(({ k, value }, i) => `${i ? "L" : "M"}${[x(k), y(value)]}`).join("");
  const at = known.find(({ k }) => k === 0.01);
  return (
    <figure class="curve">
      <svg
        width={CURVE.width}
        height={CURVE.height}
        role="img"
        aria-label={known.map(({ k, value }) => `${100 * k} %: ${shortWeight(value)}`).join(", ")}
      >
        {[0, 1].map((value) => (
          <g key={value}>
            <line class="rule" x1={CURVE.left} x2={CURVE.width - 16} y1={y(value)} y2={y(value)} />
            <text x={CURVE.left - 6} y={y(value) + 4} text-anchor="end">
              {value}
            </text>
          </g>
        ))}
        <path d={path} />
        {known.map(({ k, value }) => (
          <circle key={k} cx={x(k)} cy={y(value)} r="2.6" />
        ))}
        {[0.001, 0.01, 0.1, 1].map((k) => (
          <text key={k} x={x(k)} y={CURVE.height - 1} text-anchor="middle">
            {100 * k} %
          </text>
        ))}
      </svg>
      <figcaption class="mut">
        <b>Faithfulness</b> of the largest wires alone
        {at && `: ${shortWeight(at.value)} with 1 %`}, on {curve.pairs} other pairs. CPR{" "}
        {shortWeight(curve.cpr)}, CMD {shortWeight(curve.cmd)}
      </figcaption>
    </figure>
  );
}

/** Wires of the two texts can be measured now, or by a command. */
function NoWires() {
  const session = useSession();
  const { progress, measuringWires } = session.requests;
  const isPair = session.sides.value.length === 2;
  const model = /--model (\S+)/.exec(session.header.command)?.[1] ?? "MODEL";
  return (
    <div class="wires-none">
      <h3>Which head feeds which?</h3>
      <p>
        A wire is measured by a contrast: two texts of equal length that differ in a word or two,
        such as “John gave a drink to” and “Mary gave a drink to”.
        {!isPair && " Compare this text with another one to measure its wires."}
      </p>
      {isPair && (
        <Button
          class="go"
          disabled={measuringWires.value}
          onClick={() => void session.requests.measureWires()}
        >
          {measuringWires.value
            ? `Measuring ${progress.value ? `· ${progress.value.done} of ${progress.value.total} …` : "…"}`
            : "Measure the wires of this pair"}
        </Button>
      )}
      <p class="mut">
        One pair says nothing about other sentences. Intervals and stability need a file of pairs:
      </p>
      <Command text={`headscope wires ioi --model ${model} -o wires`} />
    </div>
  );
}
