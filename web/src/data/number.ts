// Numbers as they are printed.

/** How well a weight is known. */
export type Precision = "exact" | "fine" | "coarse";

export function formatWeight(weight: number, precision: Precision): string {
  if (Number.isNaN(weight)) return "missing";
  if (precision === "exact") return minus(weight.toFixed(4));
  if (precision === "fine") return minus(weight.toFixed(3));
  return `≈${minus(weight.toFixed(2))}`;
}

/** A number with about three digits that matter. */
export function formatNumber(value: number): string {
  if (Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 || size === 0 ? 2 : 3;
  return minus(value.toFixed(digits));
}

export function formatSigned(value: number): string {
  return value > 0 ? `+${formatNumber(value)}` : formatNumber(value);
}

function minus(text: string): string {
  return /^-0\.?0*$/.test(text) ? text.slice(1) : text.replace("-", "−");
}

/** −Σ p ln p of a row, renormalized; NaN for a row without attention. */
export function entropy(row: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < row.length; i++) if (row[i] > 0) sum += row[i];
  if (sum === 0) return Number.NaN;
  let total = 0;
  for (let i = 0; i < row.length; i++) {
    if (row[i] > 0) total -= (row[i] / sum) * Math.log(row[i] / sum);
  }
  return total;
}

/** Names of the statistics that Python sends, as people read them. */
export const STATISTICS: Record<string, { label: string; title: string; unit: string }> = {
  entropy: { label: "entropy", title: "mean entropy of a query's attention", unit: "nats" },
  distance: { label: "distance", title: "mean distance from query to key", unit: "tokens" },
  first: { label: "to the first token", title: "share of attention to the first token", unit: "" },
  special: { label: "to special tokens", title: "share of attention to special tokens", unit: "" },
  previous: { label: "to the previous token", title: "share to the previous token", unit: "" },
  same: { label: "to the same token", title: "share of each token to itself", unit: "" },
  next: { label: "to the next token", title: "share to the next token", unit: "" },
  between: { label: "between the texts", title: "share to the other text", unit: "" },
};
