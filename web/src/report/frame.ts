// What stands around a figure: number, title, controls, caption, equation, paper, downloads.

import { csvText, download } from "../view/download.ts";
import { make, quiet } from "../view/element.ts";
import type { Figure } from "./data.ts";
import { Dots } from "./dots.ts";
import type { Drawing, Scope } from "./draw.ts";
import { Exemplars } from "./exemplars.ts";
import { stacked, svgText } from "./files.ts";
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
        figure.kind === "table"
          ? null
          : quiet("SVG", "Save this figure as SVG", () =>
              this.save(this.svg(), "svg", "image/svg+xml"),
            ),
        quiet("CSV", "Save the data of this figure as CSV", () =>
          this.save(csvText(this.drawing.csv()), "csv", "text/csv"),
        ),
      ),
    );
    this.about();
  }

  private save(content: string, suffix: string, type: string): void {
    download(new Blob([content], { type }), `${this.figure.id}.${suffix}`);
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
    const heads = drawing instanceof Heads ? drawing : null;
    let rows = [
      { name: heads?.about.meaning ?? "", key: heads?.equation ?? figure.equation ?? "" },
    ];
    if (figure.kind === "lines" && !figure.equation) {
      rows = figure.columns.map(({ title, equation = "" }) => ({ name: title, key: equation }));
    }
    const shown = rows.flatMap(({ name, key }) => {
      const tree = equations[key];
      if (!tree && !(heads && name)) return [];
      const text = name ? make("span", { text: name }) : null;
      return make("div", { class: "equation" }, text, tree ? equation(tree) : null);
    });
    const paper = heads?.about.paper ?? figure.paper;
    const source = paper ? [make("p", { class: "paper", text: paper })] : [];
    this.notes.replaceChildren(...shown, ...source);
  }
}
