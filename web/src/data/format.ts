// Numbers as text, on pages and in reports.

import type { Axis, IntervalCell } from "../../generated/report.ts";

export type Precision = "exact" | "fine" | "coarse";

const SPACE = "\u00a0";

export function formatWeight(weight: number, precision: Precision): string {
  if (Number.isNaN(weight)) return "missing";
  if (precision === "exact") return minus(weight.toFixed(4));
  if (precision === "fine") return minus(weight.toFixed(3));
  return `≈${minus(weight.toFixed(2))}`;
}

/** Format a weight for a caption, with two digits. */
export function shortWeight(weight: number): string {
  return Number.isNaN(weight) ? "missing" : minus(weight.toFixed(2));
}

export function points(difference: number): string {
  return plus(difference, minus((100 * difference).toFixed(1)));
}

export function signed(difference: number): string {
  return plus(difference, minus(difference.toFixed(2)));
}

export function formatNumber(value: number): string {
  if (Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 || size === 0 ? 2 : 3;
  return minus(value.toFixed(digits));
}

export function formatSigned(value: number): string {
  return plus(value, formatNumber(value));
}

/** Format a number, keeping two digits of small ones: gradients are thousandths. */
export function formatSmall(value: number): string {
  const size = Math.abs(value);
  if (size === 0 || size >= 0.01) return formatNumber(value);
  if (size >= 0.0001) return minus(value.toPrecision(2));
  return value.toExponential(1).replaceAll("-", "−");
}

/** Format a probability: whole percents from 10 %, else two digits. */
export function probability(share: number): string {
  const value = 100 * share;
  const text = value >= 10 || value === 0 ? value.toFixed(0) : value.toPrecision(2);
  return value > 0 && value < 0.01
    ? "< 0.01 %"
    : `${text === "100" && value < 99.95 ? value.toFixed(1) : text} %`;
}

export function percent(share: number | null): string {
  return share === null || Number.isNaN(share) ? "–" : `${Math.round(100 * share)} %`;
}

/** Format a value of a report; shares in percent. */
export function formatValue(value: number | null | undefined, share: boolean): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return bare(value, share) + (share ? `${SPACE}%` : "");
}

/** Format a value with its interval: `43.1 % [42.2–44.0]`. */
export function withInterval(
  value: number | null | undefined,
  low: number | null | undefined,
  high: number | null | undefined,
  share: boolean,
): string {
  const text = formatValue(value, share);
  if (low === null || low === undefined || high === null || high === undefined) return text;
  return `${text} [${bare(low, share)}${low < 0 ? " to " : "–"}${bare(high, share)}]`;
}

function bare(value: number, share: boolean): string {
  return share ? minus((100 * value).toFixed(1)) : formatSmall(value);
}

export function isInterval(value: unknown): value is IntervalCell {
  return typeof value === "object" && value !== null && "low" in value;
}

export function axisNumber(value: number, share: boolean): string {
  const plain = Number((share ? value * 100 : value).toPrecision(6));
  return `${plain}`.replace("-", "−") + (share ? `${SPACE}%` : "");
}

/** Title of an axis with its unit, `Mean distance (tokens)`; shares have it at each number. */
export function axisTitle({ title, units, share }: Axis): string {
  return share || !units ? title : `${title} (${units})`;
}

/** About `count` round numbers from `low` to `high`. */
export function ticks(low: number, high: number, count: number): number[] {
  const span = high - low;
  if (!(span > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(span / Math.max(1, count)));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => span / s <= count)!;
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) =>
    Number(((first + i) * step).toFixed(12)),
  );
}

/** Step between labeled integers so that at most `most` of `count` are labeled. */
export function everyNth(count: number, most: number): number {
  return [1, 2, 5, 10, 20, 50, 100].find((step) => count / step <= most) ?? 200;
}

export function ordinal(n: number): string {
  const last = n % 100;
  const ending = last >= 11 && last <= 13 ? "th" : (["th", "st", "nd", "rd"][n % 10] ?? "th");
  return `${n}${ending}`;
}

export function lowered(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}

export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function plus(value: number, text: string): string {
  return value > 0 ? `+${text}` : text;
}

function minus(text: string): string {
  return /^-0\.?0*$/.test(text) ? text.slice(1) : text.replace("-", "−");
}
