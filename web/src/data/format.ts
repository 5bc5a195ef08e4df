// Numbers as they are printed.

import type { Axis, Interval } from "../report/data.ts";

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

const SPACE = "\u00a0";

export function shown(value: number | null | undefined, share: boolean): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return share ? `${percent(value)}${SPACE}%` : plainNumber(value);
}

/** `43.1 % [42.2–44.0]`. */
export function withInterval(
  value: number | null | undefined,
  low: number | null | undefined,
  high: number | null | undefined,
  share: boolean,
): string {
  const text = shown(value, share);
  if (low === null || low === undefined || high === null || high === undefined) return text;
  const [a, b] = share ? [percent(low), percent(high)] : [plainNumber(low), plainNumber(high)];
  return `${text} [${a}${low < 0 ? " to " : "–"}${b}]`;
}

export function isInterval(value: unknown): value is Interval {
  return typeof value === "object" && value !== null && "low" in value;
}

function percent(value: number): string {
  return (100 * value)
    .toFixed(1)
    .replace(/^-(?=0\.0$)/, "")
    .replace("-", "−");
}

/** Small numbers keep their digits: gradients are thousandths. */
export function plainNumber(value: number): string {
  const size = Math.abs(value);
  if (size === 0 || size >= 0.01) return formatNumber(value);
  if (size >= 0.0001) return value.toPrecision(2).replace("-", "−");
  return value.toExponential(1).replace("e-", "e−").replace(/^-/, "−");
}

export function axisNumber(value: number, share: boolean): string {
  const plain = Number((share ? value * 100 : value).toPrecision(6));
  return `${plain}`.replace("-", "−") + (share ? `${SPACE}%` : "");
}

/** `Mean distance (tokens)`; shares say their unit with each number. */
export function axisTitle({ title, units, share }: Axis): string {
  return share || !units ? title : `${title} (${units})`;
}

/** Round numbers from `low` to `high`, about `count` of them. */
export function ticks(low: number, high: number, count: number): number[] {
  const span = high - low;
  if (!(span > 0)) return [low];
  const rough = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => span / s <= count)!;
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) =>
    Number(((first + i) * step).toFixed(12)),
  );
}

/** Every n-th of whole numbers, so that at most `most` are labeled. */
export function everyNth(count: number, most: number): number {
  return [1, 2, 5, 10, 20, 50, 100].find((step) => count / step <= most) ?? 200;
}
