// Numbers as they are printed.

/** How well a weight is known. */
export type Precision = "exact" | "fine" | "coarse";

export function formatWeight(weight: number, precision: Precision): string {
  if (Number.isNaN(weight)) return "missing";
  if (precision === "exact") return minus(weight.toFixed(4));
  if (precision === "fine") return minus(weight.toFixed(3));
  return `≈${minus(weight.toFixed(2))}`;
}

/** A weight as a caption gives it: two digits. */
export function shortWeight(weight: number): string {
  return Number.isNaN(weight) ? "missing" : minus(weight.toFixed(2));
}

/** A difference of percentages, in points. */
export function points(difference: number): string {
  const text = minus((100 * difference).toFixed(1));
  return difference > 0 ? `+${text}` : text;
}

/** A difference of log-odds. */
export function signed(difference: number): string {
  const text = minus(difference.toFixed(2));
  return difference > 0 ? `+${text}` : text;
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
