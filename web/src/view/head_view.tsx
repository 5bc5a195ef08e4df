// One head: title and tabs.

import { capital, lowered, percent, shortWeight } from "../data/format.ts";
import { printed } from "../data/tokens.ts";
import { lineWidth } from "../layout/lines_layout.ts";
import { inkOn } from "../paint/roles.ts";
import { cssOf } from "../paint/theme.ts";
import { type HeadId, headCode, headName, isSameHead, TABS } from "../state/selection.ts";
import { Button, consume, Segments } from "./controls.tsx";
import { EffectPane } from "./effect_view.tsx";
import { EvidenceTab } from "./evidence.tsx";
import { useSession } from "./explorer_context.ts";
import { LinesTab } from "./lines_view.tsx";
import { MatrixTab } from "./matrix_view.tsx";
import { MediaStrip } from "./media_view.tsx";
import { NeuronsTab } from "./neurons_view.tsx";
import { corpusRole, headColor, roleLookOf, roleText, titleParts } from "./selected_head.ts";

export function HeadPane() {
  const session = useSession();
  const tab = session.tab.value;
  return (
    <section class="head" aria-label="This head">
      <Title />
      <Tabs />
      <div class="body" role="tabpanel" aria-label={tab}>
        {tab !== "evidence" && tab !== "effect" && <MediaStrip />}
        {tab === "lines" && <LinesTab />}
        {tab === "matrix" && <MatrixTab />}
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
  const look = roleLookOf(session, lead, selection);
  const combined = session.combined(lead);
  const title = titleParts(session);
  const background = look[session.theme.value.scheme];
  return (
    <div class="title">
      <div class="row">
        <span
          class="badge"
          style={{ background, color: inkOn(headColor(session, lead)) }}
          title={roleText(lead, selection)}
        >
          {look.symbol} {combined ? `${combined.length} heads` : headName(selection)}
        </span>
        <h2>
          {combined ? <Mean heads={combined} /> : title.lead}{" "}
          {!combined && title.words.length > 0 && <Quoted words={title.words} />}
          {!combined &&
            title.links.map((link, i) => (
              <b key={`${i}${link.from.label}`}>
                {i > 0 && ", "}
                <bdi>{printed(link.from.label)}</bdi> → <bdi>{printed(link.to.label)}</bdi>{" "}
                {shortWeight(link.weight)}
              </b>
            ))}
        </h2>
      </div>
      <p class="sub">
        <Subtitle />
      </p>
    </div>
  );
}

const NAMED = 4;

function Mean({ heads }: { heads: readonly HeadId[] }) {
  const session = useSession();
  const { combine } = session.selection.value.filter;
  const names = heads.slice(0, NAMED).map(headName).join(", ");
  const rest = heads.length > NAMED ? ` and ${heads.length - NAMED} more` : "";
  const all = combine === "all" ? "all heads" : "the heads of the layer";
  return (
    <>
      mean over {combine === "off" ? `${names}${rest}` : all}{" "}
      {combine === "off" && (
        <Button class="b" onClick={() => session.update({ also: [] })}>
          one head
        </Button>
      )}
    </>
  );
}

function Quoted({ words }: { words: readonly string[] }) {
  return (
    <>
      {words.map((word, i) => (
        <span key={word}>
          {i > 0 && " and "}“<bdi>{word}</bdi>”
        </span>
      ))}
      :{" "}
    </>
  );
}

function Subtitle() {
  const session = useSession();
  const selection = session.selection.value;
  const side = session.lead.value;
  if (session.edits.isOff(selection)) {
    return (
      <>
        <b class="dn">Switched off.</b> Dashed: what it would read; none of it reaches the model
        now.
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
  if (changed) parts.push(`B is the model ${changed}`);
  const isTitled = titleParts(session).lead.startsWith("attention sink");
  if (sink != null && sink >= 0.05 && !isTitled)
    parts.push(`${percent(sink)} of attention on the first token`);
  if (distance != null)
    parts.push(`words it reads are ${distance.toFixed(1)} tokens away on average`);
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
  const names = TABS.filter((name) => name !== "effect" || session.layout.value === "middle");
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
    <div class="tabs" role="tablist" aria-label="Ways to see this head" onKeyDown={move}>
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
      {now === "lines" && <WidthLegend />}
      {now === "matrix" && session.hasDifference && <Minus />}
      {now === "neurons" && (
        <span class="wl">
          <i class="dot up" /> positive <i class="dot down" /> negative
        </span>
      )}
    </div>
  );
}

function Minus() {
  const session = useSession();
  const { minus } = session.selection.value;
  return (
    <span class="wl">
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
    </span>
  );
}

function WidthLegend() {
  const session = useSession();
  const color = cssOf(headColor(session, session.lead.value));
  return (
    <span class="wl">
      <span class="of">share of a word's attention</span>
      {[0.1, 0.3, 0.6, 1].map((weight) => (
        <span key={weight} class="width">
          <i style={{ height: `${lineWidth(weight)}px`, background: color }} />
          {weight}
        </span>
      ))}
    </span>
  );
}
