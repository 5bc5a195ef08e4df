// The report as a page: findings, sections of figures, provenance, and the card of a head.

import { type Scheme, themeOf } from "../paint/theme.ts";
import { make, segments } from "../view/element.ts";
import { CardPanel } from "./card.ts";
import type { HeadId, Report, Rows } from "./data.ts";
import { type Scope, svg } from "./draw.ts";
import { Frame } from "./frame.ts";
import { applyColors } from "./palette.ts";
import { addressOf, finding, sentence } from "./text.ts";
import { Tooltip } from "./tooltip.ts";
import { headsFigure } from "./variable_list.ts";

export class ReportPage {
  private readonly scope: Scope;
  private readonly card: CardPanel;
  private readonly frames: Frame[] = [];
  private readonly content = make("article", { class: "report" });
  /** The first screen: every head, and what was found. */
  private readonly first = make("div", { class: "first" });
  private opening: Frame | null = null;
  private choice: Scheme | "auto" = "auto";
  private readonly dark = matchMedia("(prefers-color-scheme: dark)");

  constructor(
    host: HTMLElement,
    private readonly report: Report,
  ) {
    const tooltip = new Tooltip();
    this.scope = {
      report,
      tooltip,
      openCard: (id) => this.card.open(id),
      chosen: () => this.card.chosen,
    };
    this.card = new CardPanel(this.scope, (id) => this.remember(id));
    const numbers = numbered(report);
    this.first.append(...this.firstFigure(numbers), ...this.findings(numbers));
    this.content.append(
      this.header(),
      make("h1", { text: unbroken(report.title) }),
      this.first,
      ...report.sections.flatMap((section) => this.section(section, numbers)),
      this.provenance(),
    );
    const overlay = make("div", { class: "overlay" }, tooltip.element);
    this.paint();
    host.replaceChildren(this.content, this.card.element, overlay);
    this.draw();
    this.listen();
    this.follow();
  }

  private header(): HTMLElement {
    const choices = [
      { value: "auto", label: "Auto" },
      { value: "light", label: "Light" },
      { value: "dark", label: "Dark" },
    ];
    const theme = segments("Colors", choices, (value) => {
      this.choice = value as typeof this.choice;
      theme.set(value);
      this.paint();
    });
    theme.set(this.choice);
    const links = this.report.sections.map(({ id, title }) =>
      make("li", {}, make("a", { text: title, attributes: { href: `#${id}` } })),
    );
    links.push(
      make("li", {}, make("a", { text: "Provenance", attributes: { href: "#provenance" } })),
    );
    return make(
      "header",
      { class: "top" },
      logo(),
      make("span", { class: "brand", text: "headscope" }),
      make("span", { class: "where", text: "report" }),
      make("nav", { attributes: { "aria-label": "Contents" } }, make("ul", {}, ...links)),
      theme.element,
    );
  }

  /** Every head, on the first screen. */
  private firstFigure(numbers: ReadonlyMap<string, string>): HTMLElement[] {
    const figure = headsFigure(this.report);
    if (!figure) return [];
    this.opening = new Frame(figure, this.scope, numbers.get(figure.id) ?? "", numbers);
    return [this.opening.element];
  }

  private findings(numbers: ReadonlyMap<string, string>): HTMLElement[] {
    const { findings } = this.report;
    if (!findings.length) return [];
    const parts = findings.map(({ title, paragraphs }) =>
      make(
        "div",
        { class: "finding" },
        findings.length > 1 ? make("h3", { text: title }) : null,
        make(
          "ul",
          {},
          ...paragraphs.flatMap(({ topic, sentences }) =>
            sentences.map((one, i) => finding(one, this.scope, numbers, i ? "" : topic)),
          ),
        ),
      ),
    );
    const note =
      "Written from the numbers by rules. Point at a sentence, or go to it by Tab, for its 95 % " +
      "intervals over documents and for the test that bears it out.";
    return [
      make(
        "section",
        { class: "findings", attributes: { id: "findings" } },
        make("h2", { text: "Findings" }),
        ...parts,
        make("p", { class: "soft", text: note }),
      ),
    ];
  }

  private section(
    { id, title, text, figures }: Report["sections"][number],
    numbers: ReadonlyMap<string, string>,
  ): HTMLElement[] {
    const frames = figures
      .filter((figure) => figure.kind !== "heads")
      .map((figure) => new Frame(figure, this.scope, numbers.get(figure.id) ?? "", numbers));
    this.frames.push(...frames);
    if (frames.length === 0 && text.length === 0) return [];
    const element = make(
      "section",
      { attributes: { id } },
      make("h2", { text: title }),
      ...text.map((one) => make("p", {}, ...sentence(one, this.scope, numbers))),
      ...frames.map((frame) => frame.element),
    );
    return [element];
  }

  private provenance(): HTMLElement {
    const list = ({ rows }: Rows) => {
      const terms = rows.flatMap(([name, value]) => [
        make("dt", { text: name }),
        make("dd", { text: value }),
      ]);
      return make("dl", {}, ...terms);
    };
    const runs = this.report.provenance.map((of) =>
      make(
        "div",
        { class: "run" },
        make("h3", { text: of.title }),
        list(of),
        ...of.runs.flatMap((run) => [make("h4", { text: run.title }), list(run)]),
      ),
    );
    return make(
      "section",
      { attributes: { id: "provenance" } },
      make("h2", { text: "Provenance" }),
      ...runs,
    );
  }

  private paint(scheme?: Scheme): void {
    const system = this.dark.matches ? "dark" : "light";
    const chosen = scheme ?? (this.choice === "auto" ? system : this.choice);
    applyColors(document.documentElement, themeOf(chosen));
  }

  private draw(): void {
    const room = this.content.clientWidth - 2 * margin(this.content);
    if (room <= 0) return; // not on screen yet; the observer will tell
    const width = Math.max(NARROWEST, Math.min(room, FIGURE));
    for (const frame of this.frames) frame.draw(width);
    this.opening?.draw(Math.max(NARROWEST, this.opening.element.clientWidth));
  }

  private listen(): void {
    new ResizeObserver(() => this.draw()).observe(this.content);
    this.dark.addEventListener("change", () => this.paint());
    addEventListener("beforeprint", () => this.paint("light"));
    addEventListener("afterprint", () => this.paint());
    addEventListener("hashchange", () => this.follow());
    addEventListener("scroll", () => this.scope.tooltip.hide(), { passive: true });
  }

  /** Open the card that the address names: `#L7H9`; `#1.L7H9` of the second model; and, as pages
   *  link to it, `#bert/L7H9` of a model by its name. */
  private follow(): void {
    const found = /^#(?:(\d+)\.|(.+)\/)?L(\d+)H(\d+)$/.exec(location.hash);
    if (!found) return;
    const name = decodeURIComponent(found[2] ?? "");
    const named = this.report.subjects.findIndex(({ title }) => title.startsWith(name));
    const subject = name ? named : Number(found[1] ?? 0);
    this.card.open([subject, Number(found[3]), Number(found[4])]);
  }

  private remember(id: HeadId | null): void {
    document.documentElement.classList.toggle("with-card", id !== null);
    this.draw();
    if (location.protocol === "about:") return;
    const address = id ? addressOf(id) : location.pathname + location.search;
    history.replaceState(null, "", address);
  }
}

/** Widest drawing in pixels; text keeps to a narrower measure. */
const FIGURE = 880;
const NARROWEST = 240;

/** As on the explorer's bar. */
function logo(): SVGSVGElement {
  const dot = (cx: number) => svg("circle", { cx, cy: 15, r: 1.4 });
  const arc = (d: string) => svg("path", { d });
  const parts = [
    arc("M2 15C2 3 16 3 16 15"),
    arc("M2 15C2 9.5 9 9.5 9 15"),
    ...[2, 9, 16].map(dot),
  ];
  return svg("svg", { width: 18, height: 18, class: "logo", "aria-hidden": "true" }, ...parts);
}

function margin(element: HTMLElement): number {
  return Number.parseFloat(getComputedStyle(element).paddingLeft) || 0;
}

/** Names of models do not break at their hyphens. */
function unbroken(title: string): string {
  return title.replaceAll("-", "\u2011");
}

/** `Fig. 3` or `Table 1` by figure, in the order of the page. */
function numbered(report: Report): Map<string, string> {
  const found = new Map<string, string>();
  let [figures, tables] = [0, 0];
  for (const { id, kind } of report.sections.flatMap((section) => section.figures)) {
    found.set(id, kind === "table" ? `Table ${++tables}` : `Fig. ${++figures}`);
  }
  return found;
}
