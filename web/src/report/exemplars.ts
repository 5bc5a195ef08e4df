// Documents in which chosen heads pay their highest weights.

import { arcOf } from "./arcs.ts";
import type { ExemplarsFigure } from "./data.ts";
import { canvas, type Drawing, type Scope, Spots, svg, text, textWidth } from "./draw.ts";

export class Exemplars implements Drawing {
  constructor(
    private readonly figure: ExemplarsFigure,
    private readonly scope: Scope,
  ) {}

  render(width: number): SVGSVGElement {
    const { report } = this.scope;
    const content = svg("g");
    const spots = new Spots(this.scope);
    let y = 0;
    this.figure.panels.forEach((panel, i) => {
      content.append(
        text(0, y + 13, report.subjects[panel.subject].title, {
          fill: "var(--ink)",
          "font-weight": 600,
          "font-size": 13,
        }),
      );
      y += 26;
      for (const { layer, head, why, exemplars } of panel.heads) {
        const name = `L${layer} H${head}`;
        const label = text(0, y + 12, name, {
          class: "link",
          fill: "var(--accent)",
          "font-size": 12.5,
          "font-weight": 600,
        });
        const spot = { heading: name, rows: [{ label: why, value: "" }], panel: i, x: 0, y };
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
        y += 12;
      }
      y += 8;
    });
    const root = canvas(width, y, this.figure.title);
    root.append(content);
    spots.listen(root);
    return root;
  }

  csv(): (string | number | null)[][] {
    const { report } = this.scope;
    const rows: (string | number | null)[][] = [
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
