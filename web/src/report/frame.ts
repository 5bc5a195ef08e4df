// What stands around a figure: number, title, controls, caption, equation, paper, downloads.

import { make, quiet } from "../view/element.ts";
import type { Figure } from "./data.ts";
import { Dots } from "./dots.ts";
import type { Drawing, Scope } from "./draw.ts";
import { Exemplars } from "./exemplars.ts";
import { csvText, saveText, stacked, svgText } from "./files.ts";
import { Finder } from "./finder.ts";
import { HeadMap } from "./head_map.ts";
import { Heads } from "./heads.ts";
import { Lines } from "./lines.ts";
import { Matrix } from "./matrix.ts";
import { Table } from "./table.ts";
import { equation, sentence } from "./text.ts";

export class Frame {
  readonly element: HTMLElement;
  private readonly drawing: Drawing;
  private readonly body = make("div", { class: "drawing" });
  private readonly notes = make("div", { class: "notes" });
  private width = 0;

  constructor(
    private readonly figure: Figure,
    private readonly scope: Scope,
    private readonly number: string,
    numbers: ReadonlyMap<string, string>,
  ) {
    this.drawing = this.make();
    const isTable = figure.kind === "table";
    const caption = make(
      "figcaption",
      {},
      make("strong", { text: `${number}. ${figure.title}. ` }),
      ...sentence(figure.caption, scope, numbers),
    );
    this.element = make(
      "figure",
      { attributes: { id: `figure-${figure.id}`, "aria-label": `${number}. ${figure.title}` } },
      this.drawing.controls ? make("div", { class: "controls" }, this.drawing.controls) : null,
      this.body,
      caption,
      this.notes,
      make(
        "div",
        { class: "downloads" },
        isTable
          ? null
          : quiet("SVG", "Save this figure as SVG", () =>
              saveText(this.svg(), `${figure.id}.svg`, "image/svg+xml"),
            ),
        quiet("CSV", "Save the data of this figure as CSV", () =>
          saveText(csvText(this.drawing.csv()), `${figure.id}.csv`, "text/csv"),
        ),
      ),
    );
    this.about();
  }

  private make(): Drawing {
    const { figure, scope } = this;
    const redraw = () => {
      this.draw(this.width, true);
      this.about();
    };
    switch (figure.kind) {
      case "heads":
        return new Heads(figure, scope, redraw);
      case "lines":
        return new Lines(figure, scope);
      case "matrix":
        return new Matrix(figure, scope);
      case "table":
        return new Table(figure, scope);
      case "finder":
        return new Finder(figure, scope, redraw);
      case "map":
        return new HeadMap(figure, scope, redraw);
      case "exemplars":
        return new Exemplars(figure, scope);
      case "dots":
        return new Dots(figure, scope);
    }
  }

  draw(width: number, again = false): void {
    if (width === this.width && !again) return;
    this.width = width;
    this.body.replaceChildren(this.drawing.render(width));
  }

  private svg(): string {
    const drawings = [...this.body.querySelectorAll("svg")];
    return svgText(stacked(drawings), `${this.number}. ${this.figure.title}`);
  }

  /** Equations and papers; of the variable shown, where there are several. */
  private about(): void {
    const { figure, drawing } = this;
    const { equations } = this.scope.report;
    const rows: { name: string; key: string }[] = [];
    if (drawing instanceof Heads) rows.push({ name: drawing.about.meaning, key: drawing.equation });
    else if (figure.kind === "lines" && !figure.equation) {
      for (const one of figure.columns) rows.push({ name: one.title, key: one.equation ?? "" });
    } else if (figure.equation) rows.push({ name: "", key: figure.equation });
    const paper = drawing instanceof Heads ? drawing.about.paper : figure.paper;
    const isNamed = drawing instanceof Heads;
    const known = rows.filter(({ key }) => isNamed || equations[key]);
    const shown = known.map(({ name, key }) => {
      const tree = equations[key];
      return make(
        "div",
        { class: "equation" },
        name ? make("span", { text: name }) : null,
        tree ? (equation(tree) as unknown as Node) : null,
      );
    });
    this.notes.replaceChildren(
      ...shown.filter((row) => row.childNodes.length > 0),
      ...(paper ? [make("p", { class: "paper", text: paper })] : []),
    );
  }
}
