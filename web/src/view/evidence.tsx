// What the head does in general: its card from a corpus run.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { printed } from "../data/axis.ts";
import { formatNumber } from "../data/number.ts";
import type { Card, Relation } from "../data/payload.ts";
import { parseHead } from "../state/fragment.ts";
import { headCode, headName } from "../state/selection.ts";
import { useSession } from "./context.ts";

export function EvidenceTab() {
  const session = useSession();
  const selection = session.selection.value;
  const { evidence, report } = session.header;
  const { model } = session.lead.value.base;
  if (!evidence) {
    return (
      <div class="evidence">
        <div class="note">
          <b>No corpus stands behind this page.</b> One text is an anecdote. Measure all heads over
          documents, and save the page with what was found:
          <br />
          <code>headscope analyze CORPUS --model MODEL -o run</code>
          <br />
          <code>trace.save_page("page.html", evidence=result)</code>
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

function CardParts({ card }: { card: Card }) {
  const session = useSession();
  const shares = card.numbers.filter(({ unit, value }) => /^(share.*)?$/.test(unit) && value <= 1);
  const others = card.numbers.filter((one) => !shares.includes(one));
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
        {shares.map(({ name, title, value, low, high }) => (
          <Interval key={name} name={title} value={value} low={low} high={high} />
        ))}
        {others.map(({ name, title, value, unit }) => (
          <div class="iv" key={name}>
            <span>{title}</span>
            <span />
            <b class="num">
              {formatNumber(value)} <span class="mut">{unit}</span>
            </b>
          </div>
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
          <h3>Its highest weights in the corpus</h3>
          {card.exemplars.map((exemplar, i) => (
            <Exemplar key={`${i}${exemplar.tokens[0]}`} {...exemplar} />
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
                <button key={code} type="button" class="b" onClick={() => session.update(id)}>
                  {headName(id)}
                </button>
              ) : null;
            })}
          </div>
        </div>
      )}
    </>
  );
}

type IntervalProps = Omit<Relation, "baseline" | "baseline_name"> & Partial<Relation>;

/** A share from 0 to 1 with its interval and what a rule reaches. */
function Interval({ name, value, low, high, baseline, baseline_name }: IntervalProps) {
  const x = (share: number) => 100 * Math.min(1, Math.max(0, share));
  const range = low !== null && high !== null;
  const words = [
    `${name} ${value.toFixed(2)}`,
    range ? `interval ${low.toFixed(2)} to ${high.toFixed(2)}` : "",
    baseline != null ? `${baseline_name ?? "rule"} ${baseline.toFixed(2)}` : "",
  ]
    .filter(Boolean)
    .join(", ");
  return (
    <div class="iv" title={words}>
      <span>{name}</span>
      <svg viewBox="0 0 104 12" preserveAspectRatio="none" role="img" aria-label={words}>
        <line class="axis" x1="2" x2="102" y1="6" y2="6" />
        {range && <line class="range" x1={2 + x(low)} x2={2 + x(high)} y1="6" y2="6" />}
        {baseline != null && (
          <line class="rule" x1={2 + x(baseline)} x2={2 + x(baseline)} y1="1" y2="11" />
        )}
        <circle cx={2 + x(value)} cy="6" r="3.4" />
      </svg>
      <b class="num">{value.toFixed(2)}</b>
    </div>
  );
}

/** A sentence of the corpus with its strongest links as arcs. */
function Exemplar({ tokens, links }: Card["exemplars"][number]) {
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
        const y = spans[query].offsetTop + 2;
        const rise = Math.min(16, 5 + Math.abs(a - b) / 16);
        return [{ path: `M${a} ${y}C${a} ${y - rise} ${b} ${y - rise} ${b} ${y}`, weight }];
      }),
    );
  }, [tokens, links]);
  const best = links.reduce((top, link) => (link[2] > top[2] ? link : top), links[0]);
  return (
    <p class="ex" ref={ref} dir="auto">
      <span class="w num">{best?.[2].toFixed(2)}</span>
      {tokens.map((token, i) => {
        const kind = best && i === best[0] ? "from" : best && i === best[1] ? "to" : "";
        const text = printed(token);
        const space = i > 0 && (/^\s/.test(token) || !/^[\p{P}]+$/u.test(text)) ? " " : "";
        return (
          <span key={`${i}${token}`}>
            {space}
            <span data-i={i} class={kind}>
              {text}
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
