// The report as a page: findings, sections of figures, provenance, and the card of a head.

import { type Scheme, themeOf } from "../paint/theme.ts";
import { make, segments } from "../view/element.ts";
import { Tooltip } from "../view/tooltip.ts";
import { CardPanel } from "./card.ts";
import type { HeadId, Report, Rows } from "./data.ts";
import type { Scope } from "./draw.ts";
import { Frame } from "./frame.ts";
import { applyColors } from "./palette.ts";
import { sentence } from "./text.ts";

export class ReportPage {
  private readonly scope: Scope;
  private readonly card: CardPanel;
  private readonly frames: Frame[] = [];
  private readonly content = make("article", { class: "report" });
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
    this.content.append(
      this.header(),
      ...this.findings(numbers),
      ...report.sections.map((section) => this.section(section, numbers)),
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
      {},
      make(
        "div",
        { class: "top" },
        make("span", { class: "brand", text: "headscope report" }),
        theme.element,
      ),
      make("h1", { text: unbroken(this.report.title) }),
      make("nav", { attributes: { "aria-label": "Contents" } }, make("ul", {}, ...links)),
    );
  }

  private findings(numbers: ReadonlyMap<string, string>): HTMLElement[] {
    const { findings } = this.report;
    if (!findings.length) return [];
    const parts = findings.map(({ title, paragraphs }) =>
      make(
        "div",
        { class: "finding" },
        findings.length > 1 ? make("h3", { text: title }) : null,
        ...paragraphs.map(({ topic, sentences }) =>
          make(
            "p",
            {},
            topic ? make("strong", { class: "topic", text: `${topic}. ` }) : null,
            ...sentences.flatMap((one) => [...sentence(one, this.scope, numbers), " "]),
          ),
        ),
      ),
    );
    const note =
      "Written from the numbers by rules. Brackets hold 95 % intervals over documents; what is claimed " +
      "is borne out by a test, corrected for how many were made, that the sentence names.";
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
  ): HTMLElement {
    const frames = figures.map((figure) => {
      return new Frame(figure, this.scope, numbers.get(figure.id) ?? "", numbers);
    });
    this.frames.push(...frames);
    return make(
      "section",
      { attributes: { id } },
      make("h2", { text: title }),
      ...text.map((one) => make("p", {}, ...sentence(one, this.scope, numbers))),
      ...frames.map((frame) => frame.element),
    );
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
  }

  private listen(): void {
    new ResizeObserver(() => this.draw()).observe(this.content);
    this.dark.addEventListener("change", () => this.paint());
    addEventListener("beforeprint", () => this.paint("light"));
    addEventListener("afterprint", () => this.paint());
    addEventListener("hashchange", () => this.follow());
    addEventListener("scroll", () => this.scope.tooltip.hide(), { passive: true });
  }

  /** Open the card that the address names: `#card=0.7.9`. */
  private follow(): void {
    const found = /^#card=(\d+)\.(\d+)\.(\d+)$/.exec(location.hash);
    if (found) this.card.open([Number(found[1]), Number(found[2]), Number(found[3])]);
  }

  private remember(id: HeadId | null): void {
    document.documentElement.classList.toggle("with-card", id !== null);
    if (location.protocol === "about:") return;
    const address = id ? `#card=${id.join(".")}` : location.pathname + location.search;
    history.replaceState(null, "", address);
  }
}

/** Widest drawing in pixels; text keeps to a narrower measure. */
const FIGURE = 880;
const NARROWEST = 240;

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
