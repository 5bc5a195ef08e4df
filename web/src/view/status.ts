// The status line: the chosen head, the looked-at token or pair, and their numbers.

import { printed, rowOf } from "../data/axis.ts";
import { entropy, formatNumber, formatWeight } from "../data/number.ts";
import { make } from "./element.ts";
import { Panel } from "./panel.ts";
import type { Scope } from "./scope.ts";

export class Status {
  private readonly text = make("span", { attributes: { role: "status", "aria-live": "polite" } });
  readonly element = make(
    "footer",
    { class: "status" },
    this.text,
    make("span", { class: "spring" }),
    make("span", { class: "hint", text: "arrows: layers and heads · / search · ? help" }),
  );

  constructor(private readonly scope: Scope) {
    scope.store.onHover(() => this.render());
  }

  render(): void {
    this.text.textContent = this.parts().join("  ·  ");
  }

  private parts(): string[] {
    const { scope } = this;
    const { selection, hover } = scope.store;
    if (hover.head) return [`L${hover.head.layer} H${hover.head.head}`, "click to open"];
    const panel = new Panel(scope, scope.leading);
    const { lens, series } = panel;
    const heads = selection.heads.map((head) => `H${head}`).join(" ");
    const parts =
      selection.combine === "each" ? [`L${selection.layer} ${heads}`] : [series[0]?.label ?? ""];
    const query =
      hover.query ??
      (hover.key === null && selection.queries.length === 1 ? selection.queries[0] : null);
    const key = hover.key ?? (selection.keys.length === 1 ? selection.keys[0] : null);
    const row = query === null ? -1 : rowOf(lens.rows, query);
    const column = key === null ? -1 : rowOf(lens.columns, key);
    if (row < 0 || series.length !== 1) {
      if (selection.queries.length > 1 && hover.query === null) {
        parts.push(`${selection.queries.length} queries pinned, attention summed`);
      }
      return [...parts, ...this.statistics(panel)];
    }
    const { matrix } = series[0];
    const exact = panel.exactRow(series[0], row);
    const weights =
      exact ?? matrix.weights.subarray(row * matrix.columns, (row + 1) * matrix.columns);
    const label = printed(lens.rows[row].label);
    if (column >= 0) {
      const weight = formatWeight(weights[column], exact ? "exact" : panel.precision);
      parts.push(`${label} → ${printed(lens.columns[column].label)} ${weight}`);
    } else {
      parts.push(label);
    }
    parts.push(`row entropy ${formatNumber(entropy(weights))} nats`);
    if (lens.block.name !== "cross") {
      const distance = meanDistance(
        weights,
        lens.rows[row].positions[0],
        lens.columns.map((c) => c.positions[0]),
      );
      parts.push(`mean distance ${formatNumber(distance)}`);
    }
    return parts;
  }

  private statistics(panel: Panel): string[] {
    const { selection } = this.scope.store;
    if (selection.heads.length !== 1 || selection.combine !== "each") return [];
    const { block } = panel.lens;
    const index = block.layers.indexOf(selection.layer);
    const value = (name: string) => block.statistics[name]?.[index]?.[selection.heads[0]] ?? null;
    const parts: string[] = [];
    const [mean, distance, first] = [value("entropy"), value("distance"), value("first")];
    if (mean !== null) parts.push(`mean row entropy ${formatNumber(mean)} nats`);
    if (distance !== null) parts.push(`mean distance ${formatNumber(distance)}`);
    if (first !== null) parts.push(`to the first token ${formatNumber(first)}`);
    return parts;
  }
}

function meanDistance(
  weights: ArrayLike<number>,
  from: number,
  positions: readonly number[],
): number {
  let sum = 0;
  let total = 0;
  for (let i = 0; i < weights.length; i++) {
    if (!(weights[i] > 0)) continue;
    sum += weights[i] * Math.abs(positions[i] - from);
    total += weights[i];
  }
  return total > 0 ? sum / total : Number.NaN;
}
