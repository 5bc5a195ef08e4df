// What is shown as a file: a drawing, a picture, a table, a link.

import { printed } from "../data/axis.ts";
import { placeIn } from "../data/effects.ts";
import { headCode, headName } from "../state/selection.ts";
import type { Session } from "../state/session.ts";
import { useHere } from "./context.ts";
import { headEffects } from "./effect_numbers.ts";
import { csvText, download, pngFile, type Row, svgFile } from "./saving.ts";
import { sceneOf } from "./scenes.ts";

export function ExportMenu() {
  const here = useHere();
  const { session } = here;
  const name = `headscope-${headCode(session.selection.value)}`;
  const save = async (file: Blob | Promise<Blob>, as: string) => download(await file, as);
  const table = (rows: readonly Row[]) =>
    new Blob([csvText(rows, "\n")], { type: "text/csv;charset=utf-8" });
  const copy = (text: string) => navigator.clipboard?.writeText(text);
  const choice = (label: string, act: () => Promise<void>) => (
    <button
      type="button"
      role="menuitem"
      onClick={() => {
        here.close();
        void act();
      }}
    >
      {label}
    </button>
  );
  return (
    <div class="pop menu" role="menu" aria-label="Export">
      {choice("Drawing (SVG)", () => save(svgFile(sceneOf(session)), `${name}.svg`))}
      {choice("Picture (PNG)", () => save(pngFile(sceneOf(session)), `${name}.png`))}
      {choice("Weights of this head (CSV)", () => save(table(weightRows(session)), `${name}.csv`))}
      {choice("All heads: roles, effects (CSV)", () =>
        save(table(headRows(session)), "headscope-heads.csv"),
      )}
      {choice("Copy link", () => copy(location.href))}
      {choice("Copy as a story step", () => copy(`("", "${session.step}"),`))}
    </div>
  );
}

/** The visible weights of the chosen head, a row per pair. */
function weightRows(session: Session): Row[] {
  const { layer, head } = session.selection.peek();
  const rows: Row[] = [
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
          Number.isNaN(weight) ? null : Number(weight.toFixed(5)),
        ]);
      });
    });
  }
  return rows;
}

/** A row per head: role, statistics, effect. */
function headRows(session: Session): Row[] {
  const side = session.lead.peek();
  const { block } = side;
  const names = Object.keys(block.statistics);
  const effects = headEffects(session, side);
  const rows: Row[] = [
    ["layer", "head", "name", "role", "share", ...names, ...(effects ? ["effect"] : [])],
  ];
  block.layers.forEach((layer, layerIndex) => {
    for (let head = 0; head < block.heads; head++) {
      if (!block.has(layerIndex, head)) continue;
      const { role, share } = session.roles(side)[layerIndex][head];
      const own = effects?.all[placeIn(effects.all, layerIndex, head)];
      rows.push([
        ...[layer, head, headName({ layer, head }), role, share],
        ...names.map((name) => block.statistics[name][layerIndex][head]),
        ...(effects ? [own?.value ?? null] : []),
      ]);
    }
  });
  return rows;
}
