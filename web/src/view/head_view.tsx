// One head: title and tabs.

import { rowWeights } from "../data/filtered_block.ts";
import { capital, formatNumber, lowered, percent, shortWeight } from "../data/format.ts";
import { scaleOf, summary } from "../data/head_summary.ts";
import { named, unitOf } from "../data/tokens.ts";
import { lineWidth } from "../layout/lines_layout.ts";
import { headHue, inkOn } from "../paint/roles.ts";
import { cssOf } from "../paint/theme.ts";
import { type HeadId, headCode, headName, isSameHead, MAX_HEADS } from "../state/selection.ts";
import { Button, classes, consume, pointing, Segments } from "./controls.tsx";
import { EffectPane } from "./effect_view.tsx";
import { EvidenceTab } from "./evidence.tsx";
import { useExplorer, useSession } from "./explorer_context.ts";
import { LinesTab } from "./lines_view.tsx";
import { MatrixTab } from "./matrix_view.tsx";
import { MediaStrip } from "./media_view.tsx";
import { NeuronsTab } from "./neurons_view.tsx";
import {
  asideText,
  corpusRole,
  headColor,
  matrixScale,
  roleLookOf,
  roleText,
  titleParts,
} from "./selected_head.ts";
import { WiresTab } from "./wires_view.tsx";

export function HeadPane() {
  const session = useSession();
  const tab = session.tab.value;
  return (
    <section class="head" aria-label="This head">
      <Title />
      <Tabs />
      <div class="body" role="tabpanel" aria-label={tab}>
        {!["wires", "evidence", "effect"].includes(tab) && <MediaStrip />}
        {tab === "lines" && <LinesTab />}
        {tab === "matrix" && <MatrixTab />}
        {tab === "wires" && <WiresTab />}
        {tab === "neurons" && <NeuronsTab />}
        {tab === "evidence" && <EvidenceTab />}
        {tab === "effect" && <EffectPane />}
      </div>
    </section>
  );
}

function Title() {
  const session = useSession();
  const selection = session.selection.value;
  const lead = session.lead.value;
  const combined = session.combined(lead);
  const isHidden = session.exercise.isHidden.value;
  const title = titleParts(session);
  if (session.several && selection.filter.combine === "off") return <SeveralTitle />;
  const look = roleLookOf(session, lead, selection);
  const isPlain = isHidden || asideText(session) !== "";
  const filled = {
    background: look[session.theme.value.scheme],
    color: inkOn(headColor(session, lead)),
  };
  return (
    <div class="title">
      <div class="row">
        <span class={classes("badge", isPlain && "plain-badge")} style={isPlain ? {} : filled}>
          {!isPlain && look.symbol} {combined ? `${combined.length} heads` : headName(selection)}
        </span>
        <h2>
          {combined
            ? `mean over ${selection.filter.combine === "all" ? "all heads" : "the heads of the layer"}`
            : !isHidden && title.lead}{" "}
          {!combined &&
            title.links.map((link, i) => (
              <b key={`${i}${link.from.label}`}>
                {i > 0 && ", "}
                {link.letter && `${link.letter}: `}
                <bdi>{named(link.from)}</bdi> → <bdi>{named(link.to)}</bdi>{" "}
                {shortWeight(link.weight)}
              </b>
            ))}
        </h2>
        {!combined && !isHidden && <AddHead />}
      </div>
      <p class="sub">
        {isHidden ? `${pointing(session)} other heads; choose one to guess it.` : <Subtitle />}
      </p>
    </div>
  );
}

/** The next head that is clicked is drawn over this one. */
function AddHead() {
  const explorer = useExplorer();
  const isAdding = explorer.adding.value;
  const { session } = explorer;
  if (session.selection.value.also.length >= MAX_HEADS - 1) return null;
  return (
    <Button
      class="b add"
      aria-pressed={isAdding}
      title="Draw another head over this one (Shift click)"
      onClick={() => {
        explorer.adding.value = !isAdding;
        if (session.layout.peek() === "phone") session.update({ pane: 1 });
      }}
    >
      {isAdding ? "choose a head …" : "+ head"}
    </Button>
  );
}

/** Several heads: a chip for each in its hue, and a switch for their mean. */
function SeveralTitle() {
  const session = useSession();
  const side = session.lead.value;
  const heads = session.several!;
  const { mean } = session.selection.value;
  const { scheme } = session.theme.value;
  const { row } = session.focus(side);
  const columns = side.filtered.columns;
  const target = (id: HeadId) => {
    const matrix = session.single(side, id);
    const [top] = matrix && row >= 0 ? summary(rowWeights(matrix, row), 1, 0).top : [];
    return top && `${named(columns[top.index])} ${shortWeight(top.weight)}`;
  };
  return (
    <div class="title">
      <div class="row several">
        {heads.map((id, i) => {
          const hue = headHue(i, scheme);
          return (
            <Button
              key={headCode(id)}
              class="badge"
              style={mean ? {} : { background: cssOf(hue), color: inkOn(hue) }}
              title={`${roleText(side, id)}. Click: remove it`}
              onClick={() => session.store.toggleAlso(id)}
            >
              {!mean && "abcdef"[i]} {headName(id)} ×
            </Button>
          );
        })}
        <AddHead />
        <Segments
          label="Several heads"
          value={mean}
          options={[
            [false, "overlay"],
            [true, "mean"],
          ]}
          choose={(value) => session.update({ mean: value })}
        />
        <Button class="b" onClick={() => session.update({ also: [] })}>
          back to one
        </Button>
      </div>
      <p class="sub">
        {mean
          ? `mean over ${heads.map(headName).join(", ")}`
          : row >= 0
            ? heads.map((id, i) => (
                <span key={headCode(id)}>
                  {i > 0 && " · "}
                  {"abcdef"[i]} reads <b>{target(id)}</b>
                </span>
              ))
            : "pin a word to see what each reads for it"}
      </p>
    </div>
  );
}

function Subtitle() {
  const session = useSession();
  const selection = session.selection.value;
  const side = session.lead.value;
  if (session.edits.isOff(selection)) {
    return (
      <>
        <b class="dn">Switched off.</b> Dashed: what it reads; none of it reaches the model now.
      </>
    );
  }
  const index = session.layerIndex(side.block);
  const [sink, distance] = ["first", "distance"].map(
    (name) => side.block.statistics[name]?.[index]?.[selection.head],
  );
  const changed = session.sides.value.find(({ base }) => base.changed)?.base.changed;
  const card = session.header.evidence?.cards[headCode(selection)];
  const parts: string[] = [];
  const { top } = side.block;
  if (top) {
    const { row } = session.focus(side);
    const query = row >= 0 ? side.filtered.rows[row].positions[0] : -1;
    const rest = query >= 0 ? top.rest(index, selection.head, query) : Number.NaN;
    parts.push(
      `each row keeps its ${top.keys} strongest keys` +
        (rest >= 0 ? `; the others have ${shortWeight(rest)} of this word's attention` : ""),
    );
  }
  if (changed) parts.push(`B is the model ${changed}`);
  const title = titleParts(session);
  const aside = asideText(session);
  if (aside) parts.push(aside);
  else if (sink != null && sink >= 0.05 && !title.lead.startsWith("attention sink"))
    parts.push(`${percent(sink)} of attention on the first token`);
  // The order of patches is no distance in an image.
  if (distance != null && !unitOf(side.block.queryTokens))
    parts.push(`what it reads is ${distance.toFixed(1)} tokens away on average`);
  if (corpusRole(side, selection)) parts.push(roleText(side, selection));
  else if (card?.sentences[0]) parts.push(lowered(card.sentences[0].replace(/\.$/, "")));
  return (
    <>
      {session.edits.traces.value &&
        selection.edits.some((edit) => isSameHead(edit, selection)) && (
          <b class="dn">Edited, drawn as it is now. </b>
        )}
      {parts.join(" · ")}
    </>
  );
}

function Tabs() {
  const session = useSession();
  const now = session.tab.value;
  const names = session.tabs.value;
  const move = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    const next = names[(names.indexOf(now) + step + names.length) % names.length];
    session.update({ tab: next });
    const list = event.currentTarget as HTMLElement;
    requestAnimationFrame(() => list.querySelector<HTMLElement>("[aria-selected=true]")?.focus());
    consume(event);
  };
  return (
    <div class="tabs">
      <div role="tablist" aria-label="Ways to see this head" onKeyDown={move}>
        {names.map((name) => (
          <Button
            key={name}
            role="tab"
            aria-selected={now === name}
            tabIndex={now === name ? 0 : -1}
            onClick={() => session.update({ tab: name })}
          >
            {capital(name)}
          </Button>
        ))}
      </div>
      {now === "lines" && <WidthLegend />}
      {now === "matrix" && <MatrixLegend />}
      {now === "wires" && session.wires.value && (
        <span class="wl">
          <span class="of">width: share of the gap · strength: stability ·</span>
          <i class="dot up" /> for <i class="dot down" /> against
        </span>
      )}
      {now === "neurons" && (
        <span class="wl">
          <i class="dot up" /> positive <i class="dot down" /> negative
        </span>
      )}
    </div>
  );
}

/** Scale of the matrix: full color is the head's own largest weight. */
function MatrixLegend() {
  const session = useSession();
  const theme = session.theme.value;
  const side = session.lead.value;
  const isMinus = session.selection.value.minus && session.hasDifference;
  const scale = matrixScale(session);
  const color = cssOf(session.overlaid ? theme.rgb.soft : headColor(session, side));
  const times = scale && scale.full > 0 && scale.full < 0.5 ? 1 / scale.full : 1;
  return (
    <span class="wl">
      {scale && !isMinus && (
        <span
          class="ramp"
          title={`Full color from ${shortWeight(scale.full)}: the largest weight off the first token. Square root, so that small weights show. Largest of all: ${shortWeight(scale.most)}.`}
        >
          0 <i style={{ background: `linear-gradient(90deg, ${theme.tone.panel}, ${color})` }} />{" "}
          <span class="num">{formatNumber(scale.full)}</span>
          {times > 1 && <b>scaled × {Number(times.toPrecision(2))}</b>}
        </span>
      )}
      {session.hasDifference && <Minus />}
    </span>
  );
}

function Minus() {
  const session = useSession();
  const { minus } = session.selection.value;
  return (
    <>
      {minus && (
        <span class="of">
          <i class="dot up" /> more in B <i class="dot down" /> less
        </span>
      )}
      <Segments
        label="Two inputs"
        value={minus}
        options={[
          [false, "A, B"],
          [true, "B − A"],
        ]}
        choose={(value) => session.update({ minus: value })}
      />
    </>
  );
}

function WidthLegend() {
  const session = useSession();
  const side = session.lead.value;
  const color = cssOf(session.overlaid ? session.theme.value.rgb.soft : headColor(session, side));
  const { row } = session.focus(side);
  const read = row >= 0 ? session.row(side, row)?.weights : null;
  const scale = read ? scaleOf(read) : 1;
  return (
    <span class="wl">
      <span class="of">share of a word's attention</span>
      {scale > 1 && <b>scaled × {scale}</b>}
      {[0.1, 0.3, 0.6, 1].map((weight) => (
        <span key={weight} class="width">
          <i style={{ height: `${lineWidth(weight)}px`, background: color }} />
          {Number((weight / scale).toPrecision(1))}
        </span>
      ))}
    </span>
  );
}
