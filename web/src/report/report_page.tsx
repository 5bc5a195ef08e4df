// A report as a page: findings, sections of figures, provenance, and the card of a head.

import { effect, type Signal, signal } from "@preact/signals";
import { type ComponentType, render } from "preact";
import type { Figure, Report, Rows } from "../../generated/report.ts";
import { colorVariables } from "../paint/roles.ts";
import { applyTheme, type Scheme, themeOf } from "../paint/theme.ts";
import { Logo, Segments, Tooltip } from "../view/controls.tsx";
import { DotsFigureView } from "./dots_figure.tsx";
import { ExemplarsFigureView } from "./exemplars_figure.tsx";
import { FinderFigureView } from "./finder_figure.tsx";
import { HeadCard } from "./head_card.tsx";
import { HeadsFigureView } from "./heads_figure.tsx";
import { LinesFigureView } from "./lines_figure.tsx";
import { MapFigureView } from "./map_figure.tsx";
import { MatrixFigureView } from "./matrix_figure.tsx";
import { Context, ReportContext, useReport } from "./report_context.ts";
import { addressOf, Finding, Sentence } from "./sentences.tsx";
import cardStyle from "./style/card.css";
import controlsStyle from "./style/controls.css";
import figureStyle from "./style/figure.css";
import pageStyle from "./style/page.css";
import printStyle from "./style/print.css";
import { TableFigureView } from "./table_figure.tsx";
import { headsFigure } from "./variables.tsx";

type Choice = Scheme | "auto";

/** Show a report in `host`, and follow the address, the color scheme and printing. */
export function showReport(host: HTMLElement, report: Report): void {
  const context = new ReportContext(report);
  const choice = signal<Choice>("auto");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paint = (scheme: Choice) => {
    const theme = themeOf(scheme === "auto" ? (dark.matches ? "dark" : "light") : scheme);
    const root = document.documentElement;
    applyTheme(root, theme);
    for (const [name, value] of colorVariables(theme)) root.style.setProperty(name, value);
  };
  const style = new CSSStyleSheet();
  style.replaceSync([controlsStyle, pageStyle, figureStyle, cardStyle, printStyle].join("\n"));
  document.adoptedStyleSheets = [style];
  effect(() => paint(choice.value));
  dark.addEventListener("change", () => paint(choice.value));
  addEventListener("beforeprint", () => paint("light"));
  addEventListener("afterprint", () => paint(choice.value));
  addEventListener("scroll", context.hideTip, { passive: true });
  openAddress(context);
  addEventListener("hashchange", () => openAddress(context));
  let isFirst = true;
  effect(() => {
    const id = context.chosen.value;
    document.documentElement.classList.toggle("with-card", id !== null);
    const isUnchanged = isFirst && id === null;
    isFirst = false;
    if (isUnchanged || location.protocol === "about:") return;
    const address = id ? addressOf(id) : location.pathname + location.search;
    history.replaceState(null, "", address);
  });
  host.replaceChildren();
  render(
    <Context.Provider value={context}>
      <ReportPage choice={choice} />
    </Context.Provider>,
    host,
  );
}

/** Open the card that the address names: `#L7H9`; `#1.L7H9` of the second model; or, as pages link
 *  to it, `#bert/L7H9` of a model by its name. */
function openAddress(context: ReportContext): void {
  const match = /^#(?:(\d+)\.|(.+)\/)?L(\d+)H(\d+)$/.exec(location.hash);
  if (!match) return;
  const name = decodeURIComponent(match[2] ?? "");
  const named = context.report.subjects.findIndex(({ title }) => title.startsWith(name));
  const subject = name ? named : Number(match[1] ?? 0);
  context.openCard([subject, Number(match[3]), Number(match[4])]);
}

type ReportPageProps = Readonly<{ choice: Signal<Choice> }>;

function ReportPage({ choice }: ReportPageProps) {
  const { report, tip } = useReport();
  const heads = headsFigure(report);
  return (
    <>
      <article class="report">
        <Top choice={choice} />
        <h1>{unbroken(report.title)}</h1>
        <div class="first">
          {heads && <HeadsFigureView figure={heads} />}
          <Findings />
        </div>
        {report.sections.map((section) => (
          <Section key={section.id} {...section} />
        ))}
        <Provenance />
      </article>
      <OpenCard />
      <div class="overlay">
        <Tooltip kind="tooltip" signal={tip} />
      </div>
    </>
  );
}

function OpenCard() {
  const id = useReport().chosen.value;
  return id && <HeadCard id={id} />;
}

function Top({ choice }: ReportPageProps) {
  const { sections } = useReport().report;
  const links = [...sections, { id: "provenance", title: "Provenance" }];
  return (
    <header class="top">
      <Logo kind="logo" />
      <span class="brand">headscope</span>
      <span class="where">report</span>
      <nav aria-label="Contents">
        <ul>
          {links.map(({ id, title }) => (
            <li key={id}>
              <a href={`#${id}`}>{title}</a>
            </li>
          ))}
        </ul>
      </nav>
      <Segments<Choice>
        kind="segments"
        label="Colors"
        value={choice.value}
        options={[
          ["auto", "Auto"],
          ["light", "Light"],
          ["dark", "Dark"],
        ]}
        choose={(value) => {
          choice.value = value;
        }}
      />
    </header>
  );
}

function Findings() {
  const { findings } = useReport().report;
  if (findings.length === 0) return null;
  return (
    <section class="findings" id="findings">
      <h2>Findings</h2>
      {findings.map(({ title, paragraphs }) => (
        <div class="finding" key={title}>
          {findings.length > 1 && <h3>{title}</h3>}
          <ul>
            {paragraphs.flatMap(({ topic, sentences }) =>
              sentences.map((parts, i) => (
                <Finding key={`${topic}${i}`} parts={parts} topic={i ? "" : topic} />
              )),
            )}
          </ul>
        </div>
      ))}
      <p class="soft">
        Written from the numbers by rules. Point at a sentence, or go to it by Tab, for its 95 %
        intervals over documents and for the test that bears it out.
      </p>
    </section>
  );
}

function Section({ id, title, text, figures }: Report["sections"][number]) {
  const shown = figures.filter(({ kind }) => kind !== "heads");
  if (shown.length === 0 && text.length === 0) return null;
  return (
    <section id={id}>
      <h2>{title}</h2>
      {text.map((parts, i) => (
        <p key={i}>
          <Sentence parts={parts} />
        </p>
      ))}
      {shown.map((figure) => (
        <FigureView key={figure.id} figure={figure} />
      ))}
    </section>
  );
}

const VIEWS = {
  heads: HeadsFigureView,
  lines: LinesFigureView,
  matrix: MatrixFigureView,
  table: TableFigureView,
  finder: FinderFigureView,
  map: MapFigureView,
  exemplars: ExemplarsFigureView,
  dots: DotsFigureView,
} as const;

function FigureView({ figure }: { figure: Figure }) {
  const View = VIEWS[figure.kind] as ComponentType<{ figure: Figure }>;
  return <View figure={figure} />;
}

function Provenance() {
  return (
    <section id="provenance">
      <h2>Provenance</h2>
      {useReport().report.provenance.map((source) => (
        <div class="run" key={source.title}>
          <h3>{source.title}</h3>
          <Terms {...source} />
          {source.runs.map((run) => (
            <div key={run.title}>
              <h4>{run.title}</h4>
              <Terms {...run} />
            </div>
          ))}
        </div>
      ))}
    </section>
  );
}

function Terms({ rows }: Rows) {
  return (
    <dl>
      {rows.flatMap(([name, value]) => [
        <dt key={`${name} term`}>{name}</dt>,
        <dd key={name}>{value}</dd>,
      ])}
    </dl>
  );
}

function unbroken(title: string): string {
  return title.replaceAll("-", "\u2011");
}
