// ReportCard of one head, in a panel at the side: summary, evidence, exemplars, neighbors.

import { useLayoutEffect } from "preact/hooks";
import type { HeadId, ReportCard } from "../../generated/report.ts";
import { useSize } from "../view/explorer_context.ts";
import { drawExemplar } from "./exemplars_figure.tsx";
import { Canvas } from "./marks.tsx";
import { useReport } from "./report_context.ts";
import { HeadLink, Quiet } from "./sentences.tsx";
import { roleOf } from "./variables.tsx";

/** ReportCard of the chosen head. It has the focus while it is open, then returns it. */
export function HeadCard({ id }: { id: HeadId }) {
  const context = useReport();
  const { ref, width } = useSize<HTMLElement>(false);
  const card = context.cardOf(id)!;
  const { title, page } = context.report.subjects[id[0]];
  const role = roleOf(context.report, id);
  const name = `L${card.layer} H${card.head}`;
  const close = () => {
    context.chosen.value = null;
  };
  useLayoutEffect(() => {
    const opener = document.activeElement as HTMLElement | null;
    const keyDown = (event: KeyboardEvent) => {
      if (event.key === "Escape") close();
    };
    document.addEventListener("keydown", keyDown);
    return () => {
      document.removeEventListener("keydown", keyDown);
      opener?.focus({ preventScroll: true });
    };
  }, []);
  useLayoutEffect(() => {
    if (ref.current) ref.current.scrollTop = 0;
    ref.current?.focus({ preventScroll: true });
  }, [id]);
  return (
    <aside class="card" aria-label="Head" tabIndex={-1} ref={ref}>
      <header>
        <h2
          class="badge"
          title={role.name}
          data-sign={role.symbol}
          style={{ background: `var(--role-${role.id})`, color: `var(--on-${role.id})` }}
        >
          {name}
        </h2>
        <span class="soft">{title}</span>
        <Quiet text="Close" title="Close (Escape)" click={close} />
      </header>
      <p class="summary">{card.summary}</p>
      <Exemplars card={card} color={`var(--role-${role.id})`} width={Math.max(240, width - 40)} />
      {page && (
        <p>
          <a class="go" href={`${page}#head=L${card.layer}H${card.head}`}>
            Open in the explorer
          </a>
        </p>
      )}
      {card.evidence.map(([topic, rows]) => (
        <section key={topic}>
          <h3>{topic}</h3>
          <table>
            <tbody>
              {rows.map(([what, value, rank]) => (
                <tr key={what}>
                  <th scope="row">{what}</th>
                  <td class="share">
                    <ShareBar value={value} />
                  </td>
                  <td>{value}</td>
                  <td class="soft">{rank}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      ))}
      {card.nearest.length > 0 && (
        <>
          <h3>Heads that attend most alike</h3>
          <ul>
            {card.nearest.map(([layer, head, distance]) => (
              <li key={`${layer}.${head}`}>
                <HeadLink id={[id[0], layer, head]} />{" "}
                {distance === null ? "–" : `${distance.toFixed(3)} nats`}
              </li>
            ))}
          </ul>
        </>
      )}
    </aside>
  );
}

function Exemplars({ card, color, width }: { card: ReportCard; color: string; width: number }) {
  const context = useReport();
  if (card.exemplars.length === 0) return null;
  return (
    <>
      <h3>Its highest weights</h3>
      {card.exemplars.map((arc, i) => {
        const { element, height } = drawExemplar(context, arc, width, color);
        const tokens = context.report.documents[arc.document];
        const label = `${tokens[arc.query]} → ${tokens[arc.key]}`;
        return (
          <Canvas key={i} width={width} height={height} label={label}>
            {element}
          </Canvas>
        );
      })}
    </>
  );
}

/** Bar of a share beside its number; nothing for other numbers. */
function ShareBar({ value }: { value: string }) {
  const share = /^([\d.]+)\s%/.exec(value)?.[1];
  return share === undefined ? null : <i style={{ width: `${Math.min(100, Number(share))}%` }} />;
}
