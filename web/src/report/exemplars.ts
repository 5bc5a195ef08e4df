// Documents in which chosen heads pay their highest weights.

import type { Row } from "../view/download.ts";
import { make } from "../view/element.ts";
import { arcOf } from "./arcs.ts";
import type { ExemplarsFigure } from "./data.ts";
import { canvas, type Drawing, heading, type Scope, Spots, svg, text, textWidth } from "./draw.ts";

export class Exemplars implements Drawing {
  constructor(
    private readonly figure: ExemplarsFigure,
    private readonly scope: Scope,
  ) {}

  /** A drawing for each head: paper may break between them. */
  render(width: number): HTMLElement {
    const { report } = this.scope;
    const box = make("div", { class: "pieces" });
    const spots = new Spots(this.scope);
    this.figure.panels.forEach((panel, i) => {
      panel.heads.forEach(({ layer, head, why, exemplars }, k) => {
        const content = svg("g");
        let y = 0;
        if (k === 0) {
          content.append(heading(0, 13, report.subjects[panel.subject].title, 13));
          y = 26;
        }
        const name = `L${layer} H${head}`;
        const label = text(0, y + 12, name, {
          class: "link",
          fill: "var(--accent)",
          "font-size": 12.5,
          "font-weight": 600,
        });
        const spot = { heading: name, rows: [{ label: why, value: "" }], panel: i, x: 0, y: k };
        content.append(
          spots.add(label, { ...spot, head: [panel.subject, layer, head] }),
          text(textWidth(name, 12.5, true) + 10, y + 12, why, { "font-size": 12 }),
        );
        y += 18;
        for (const arc of exemplars) {
          const { group, height } = arcOf(report.documents[arc.document], arc, width);
          group.setAttribute("transform", `translate(0 ${y})`);
          content.append(group);
          y += height;
        }
        const drawing = canvas(width, y + 12, `${name}, ${why}`);
        drawing.append(content);
        spots.listen(drawing);
        box.append(drawing);
      });
    });
    return box;
  }

  csv(): Row[] {
    const { report } = this.scope;
    const rows: Row[] = [
      ["model", "layer", "head", "weight", "query", "key", "query token", "key token", "text"],
    ];
    for (const panel of this.figure.panels) {
      for (const { layer, head, exemplars } of panel.heads) {
        for (const { weight, query, key, document } of exemplars) {
          const tokens = report.documents[document];
          const joined = tokens.join(tokens.some((token) => token.startsWith(" ")) ? "" : " ");
          const { title } = report.subjects[panel.subject];
          rows.push([title, layer, head, weight, query, key, tokens[query], tokens[key], joined]);
        }
      }
    }
    return rows;
  }
}
