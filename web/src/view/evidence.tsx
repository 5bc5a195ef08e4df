// Evidence tab: the head's card from a corpus run.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { CardNumber, PageCard, Relation } from "../../generated/payload.ts";
import { formatNumber, ordinal, percent } from "../data/format.ts";
import { inText, joinedTokens, printed, spelled } from "../data/tokens.ts";
import { arcPath } from "../layout/arcs_layout.ts";
import { headCode, headName, parseHead } from "../state/selection.ts";
import { Button, Command, classes } from "./controls.tsx";
import { useSession } from "./explorer_context.ts";

export function EvidenceTab() {
  const session = useSession();
  const selection = session.selection.value;
  const { evidence, report, live } = session.header;
  const { model } = session.lead.value.base;
  if (!evidence) {
    const save = live ? 'hs.save_live(model, "page.html"' : 'trace.save_page("page.html"';
    const loaded = /--model (\S+)/.exec(session.header.command)?.[1] ?? "MODEL";
    return (
      <div class="evidence">
        <div class="note">
          <b>No corpus stands behind this page.</b> One text is an anecdote. Measure all heads over
          documents, and save the page with what was found:
          {session.header.command && (
            <Command text={`headscope analyze CORPUS --model ${loaded} -o run`} />
          )}
          <Command text={`${save}, evidence=hs.open("run"))`} />
        </div>
      </div>
    );
  }
  const card = evidence.cards[headCode(selection)];
  return (
    <div class="evidence">
      <p class="mut wide">
        What {headName(selection)} does in general: {evidence.about}. Dot = value, bar = 95 %
        interval over documents, dash = a rule without a model.{" "}
        {report && (
          <a href={`${report}#${encodeURIComponent(model)}/${headCode(selection)}`}>
            All of it in the report ▸
          </a>
        )}
      </p>
      {card ? (
        <CardParts card={card} />
      ) : (
        <p class="note wide">No rule found anything to say of it.</p>
      )}
    </div>
  );
}

function CardParts({ card }: { card: PageCard }) {
  const session = useSession();
  const { cards, meanings } = session.header.evidence!;
  const placeOf = (kind: "looks" | "numbers", { name, value }: CardNumber) => {
    const all = Object.values(cards).flatMap(
      (other) => other[kind].find((measured) => measured.name === name) ?? [],
    );
    return `${ordinal(1 + all.filter((other) => other.value > value).length)} of ${all.length}`;
  };
  return (
    <>
      {card.sentences.length > 0 && (
        <ul class="wide claims">
          {card.sentences.map((sentence) => (
            <li key={sentence}>{sentence}</li>
          ))}
        </ul>
      )}
      <div>
        <h3>Where it looks</h3>
        {card.looks.map((measured) => (
          <Interval
            key={measured.name}
            {...measured}
            name={measured.title}
            place={placeOf("looks", measured)}
            meaning={meanings[measured.name]}
          />
        ))}
      </div>
      <div>
        <h3>What it finds</h3>
        {card.relations.length === 0 && (
          <p class="mut">No relation is found better than by a fixed distance.</p>
        )}
        {card.relations.map((relation) => (
          <Interval key={relation.name} {...relation} />
        ))}
      </div>
      {card.exemplars.length > 0 && (
        <div class="wide">
          <h3>Its highest weights in the corpus, from strong to weak</h3>
          {fromStrong(card.exemplars).map((exemplar, i) => (
            <Exemplar key={`${i}${exemplar.tokens[0]}`} {...exemplar} />
          ))}
        </div>
      )}
      {card.samples && (
        <div class="wide">
          <h3>
            Samples from strong to weak{" "}
            <small class="mut">
              documents drawn at random from each fifth of the scale of its highest weight
            </small>
          </h3>
          {card.samples.map((sample, i) => (
            <Exemplar
              key={`${i}${headCode(session.selection.value)}`}
              {...sample}
              note={`${percent(sample.share)} of documents`}
            />
          ))}
        </div>
      )}
      {card.neighbors.length > 0 && (
        <div class="wide">
          <h3>Heads most like it</h3>
          <div class="do">
            {card.neighbors.map((code) => {
              const id = parseHead(code);
              return id ? (
                <Button key={code} class="b" onClick={() => session.update(id)}>
                  {headName(id)}
                </Button>
              ) : null;
            })}
          </div>
        </div>
      )}
      {card.numbers.length > 0 && (
        <div class="wide">
          <h3>What else was measured</h3>
          <div class="more">
            {card.numbers.map((measured) => (
              <span key={measured.name} title={meanings[measured.name]}>
                {measured.title}{" "}
                <b class="num">
                  {formatNumber(measured.value)} {/^share/.test(measured.unit) ? "" : measured.unit}
                </b>{" "}
                <small class="mut">{placeOf("numbers", measured)}</small>
              </span>
            ))}
          </div>
        </div>
      )}
    </>
  );
}

/** Documents by their strongest link. */
function fromStrong(exemplars: PageCard["exemplars"]): PageCard["exemplars"] {
  const strength = ({ links }: PageCard["exemplars"][number]) =>
    Math.max(...links.map(([, , weight]) => weight));
  return [...exemplars].sort((a, b) => strength(b) - strength(a));
}

type IntervalProps = Omit<Relation, "baseline" | "baseline_name"> &
  Partial<Relation> & { readonly place?: string; readonly meaning?: string };

/** Share from 0 to 1 with its interval and the baseline of a fixed rule. */
function Interval(props: IntervalProps) {
  const { name, value, low, high, baseline, baseline_name, place, meaning } = props;
  const x = (share: number) => 4 + 68 * Math.min(1, Math.max(0, share));
  const range = low !== null && high !== null;
  const words = [
    `${name} ${value.toFixed(2)}`,
    range ? `interval ${low.toFixed(2)} to ${high.toFixed(2)}` : "",
    baseline != null ? `${baseline_name ?? "rule"} ${baseline.toFixed(2)}` : "",
  ]
    .filter(Boolean)
    .join(", ");
  return (
    <div class={classes("iv", !place && "found")} title={meaning ? `${words}. ${meaning}` : words}>
      <span>{name}</span>
      <svg viewBox="0 0 76 12" role="img" aria-label={words}>
        <line class="axis" x1="4" x2="72" y1="6" y2="6" />
        {range && <line class="range" x1={x(low)} x2={x(high)} y1="6" y2="6" />}
        {baseline != null && <line class="rule" x1={x(baseline)} x2={x(baseline)} y1="1" y2="11" />}
        <circle cx={x(value)} cy="6" r="3.4" />
      </svg>
      <span class="num">
        <b>{value.toFixed(2)}</b> {place && <small class="mut">{place}</small>}
      </span>
    </div>
  );
}

/** Tokens that an exemplar omits unless its link ends there: spaces, text boundaries. */
const UNSAID = /^(\s+|\[(CLS|SEP)\]|<\/?s>)$/;

/** Sentence of the corpus with its strongest links as arcs. */
function Exemplar({ tokens, links, note }: PageCard["exemplars"][number] & { note?: string }) {
  const ref = useRef<HTMLParagraphElement>(null);
  const [arcs, setArcs] = useState<{ path: string; weight: number }[]>([]);
  useLayoutEffect(() => {
    const box = ref.current;
    if (!box) return;
    const spans = [...box.querySelectorAll<HTMLElement>("[data-i]")];
    const middle = (i: number) => spans[i] && spans[i].offsetLeft + spans[i].offsetWidth / 2;
    setArcs(
      links.flatMap(([query, key, weight]) => {
        const [a, b] = [middle(query), middle(key)];
        if (a === undefined || b === undefined) return [];
        if (spans[query].offsetTop !== spans[key].offsetTop) return [];
        const y = spans[query].offsetTop + 1;
        // Arcs stay between the lines.
        const rise = Math.min(13, 5 + Math.abs(a - b) / 16);
        return [{ path: arcPath([a, y], [b, y], y - rise), weight }];
      }),
    );
  }, [tokens, links]);
  const texts = spelled(tokens);
  const joined = joinedTokens(texts);
  const best = links.reduce((top, link) => (link[2] > top[2] ? link : top), links[0]);
  return (
    <p class="ex" ref={ref} dir="auto">
      <span class="w num">{best?.[2].toFixed(2)}</span>
      {note && <span class="of-documents num">{note}</span>}
      {texts.map((text, i) => {
        const kind = best && i === best[0] ? "from" : best && i === best[1] ? "to" : "";
        return (
          <span key={`${i}${text}`}>
            {i > 0 && !joined[i] && " "}
            <span data-i={i} class={kind}>
              {!kind && UNSAID.test(text) ? "" : inText(printed(text))}
            </span>
          </span>
        );
      })}
      <svg aria-hidden="true">
        {arcs.map(({ path, weight }) => (
          <path key={path} d={path} stroke-width={0.8 + 1.6 * weight} />
        ))}
      </svg>
    </p>
  );
}
