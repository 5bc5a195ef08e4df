// What is shown as a file: a drawing, a picture, a table, a link.

import { printed } from "../data/axis.ts";
import { headCode, headName } from "../state/selection.ts";
import type { Session } from "../state/session.ts";
import { useHere } from "./context.ts";
import { headEffects } from "./effect_numbers.ts";
import { download, pngFile, svgFile } from "./saving.ts";
import { sceneOf } from "./scenes.ts";

export function ExportMenu() {
  const here = useHere();
  const { session } = here;
  const save = async (kind: "svg" | "png" | "csv" | "heads") => {
    here.open.value = "";
    const name = `headscope-${headCode(session.selection.peek())}`;
    if (kind === "csv") download(textFile(weightsCsv(session)), `${name}.csv`);
    else if (kind === "heads") download(textFile(headsCsv(session)), "headscope-heads.csv");
    else {
      const scene = sceneOf(session);
      const file = kind === "svg" ? svgFile(scene) : await pngFile(scene);
      download(file, `${name}.${kind}`);
    }
  };
  const copy = (text: string) => {
    here.open.value = "";
    void navigator.clipboard?.writeText(text);
  };
  const choice = (label: string, act: () => void) => (
    <button type="button" role="menuitem" onClick={act}>
      {label}
    </button>
  );
  return (
    <div class="pop menu" role="menu" aria-label="Export">
      {choice("Drawing (SVG)", () => void save("svg"))}
      {choice("Picture (PNG)", () => void save("png"))}
      {choice("Weights of this head (CSV)", () => void save("csv"))}
      {choice("All heads: roles, effects (CSV)", () => void save("heads"))}
      {choice("Copy link", () => copy(location.href))}
      {choice("Copy as a story step", () => copy(`("", "${session.fragment}"),`))}
    </div>
  );
}

function textFile(text: string): Blob {
  return new Blob([text], { type: "text/csv;charset=utf-8" });
}

function csv(rows: readonly (readonly (string | number)[])[]): string {
  const cell = (value: string | number) => {
    const text = String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return `${rows.map((row) => row.map(cell).join(",")).join("\n")}\n`;
}

/** The visible weights of the chosen head, a row per pair. */
export function weightsCsv(session: Session): string {
  const { layer, head } = session.selection.peek();
  const rows: (string | number)[][] = [
    ["input", "layer", "head", "query", "query_text", "key", "key_text", "weight"],
  ];
  for (const side of session.sides.peek()) {
    const matrix = session.matrix(side);
    if (!matrix) continue;
    side.lens.rows.forEach((from, r) => {
      side.lens.columns.forEach((to, c) => {
        const weight = matrix.weights[r * matrix.columns + c];
        rows.push([
          ...[side.letter || "A", layer, head],
          ...[from.positions[0], printed(from.label), to.positions[0], printed(to.label)],
          Number.isNaN(weight) ? "" : Number(weight.toFixed(5)),
        ]);
      });
    });
  }
  return csv(rows);
}

/** A row per head: role, statistics, effect. */
export function headsCsv(session: Session): string {
  const side = session.lead.peek();
  const { block } = side;
  const names = Object.keys(block.statistics);
  const effects = headEffects(session, side);
  const rows: (string | number)[][] = [
    ["layer", "head", "name", "role", "share", ...names, ...(effects ? ["effect"] : [])],
  ];
  block.layers.forEach((layer, layerIndex) => {
    for (let head = 0; head < block.heads; head++) {
      if (!block.has(layerIndex, head)) continue;
      const { role, share } = session.roles(side)[layerIndex][head];
      const own = effects?.all.find((one) => one.layerIndex === layerIndex && one.head === head);
      rows.push([
        ...[layer, head, headName({ layer, head }), role ?? "", share ?? ""],
        ...names.map((name) => block.statistics[name][layerIndex][head] ?? ""),
        ...(effects ? [own?.value ?? ""] : []),
      ]);
    }
  });
  return csv(rows);
}
