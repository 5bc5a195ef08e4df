// The selection as a URL fragment, so that a link or a saved page reopens where it was.

import {
  COMBINES,
  COMPARISONS,
  FORMS,
  ORDERS,
  OVERS,
  PAIRS,
  type Selection,
  THEMES,
  UNITS,
  VIEWS,
} from "./selection.ts";

const CHOICES: Partial<Record<keyof Selection, readonly string[]>> = {
  view: VIEWS,
  compare: COMPARISONS,
  pair: PAIRS,
  unit: UNITS,
  combine: COMBINES,
  over: OVERS,
  form: FORMS,
  order: ORDERS,
  theme: THEMES,
};

/** Only what differs from `base`, in a fixed order: `layer=2&heads=8`. */
export function formatFragment(selection: Selection, base: Selection): string {
  const parts: string[] = [];
  for (const key of Object.keys(base) as (keyof Selection)[]) {
    const value = formatValue(selection[key]);
    if (value !== formatValue(base[key])) parts.push(`${key}=${value}`);
  }
  return parts.join("&");
}

/** `base` changed by a fragment; what cannot be understood is left as it was. */
export function parseFragment(fragment: string, base: Selection): Selection {
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
  const changes: Record<string, unknown> = {};
  for (const [key, text] of fields) {
    if (!Object.hasOwn(base, key)) continue;
    const value = parseValue(key as keyof Selection, text, base);
    if (value !== undefined) changes[key] = value;
  }
  return { ...base, ...changes };
}

function formatValue(value: Selection[keyof Selection]): string {
  if (typeof value === "boolean") return value ? "1" : "0";
  if (typeof value === "string") return encodeURIComponent(value);
  return Array.isArray(value) ? value.join(",") : String(value);
}

function parseValue(key: keyof Selection, text: string, base: Selection): unknown {
  const like = base[key];
  const choices = CHOICES[key];
  if (choices) return choices.includes(text) ? text : undefined;
  if (typeof like === "string") return text;
  if (typeof like === "boolean") return text === "1";
  if (Array.isArray(like)) {
    const numbers = text === "" ? [] : text.split(",").map(Number);
    return numbers.every((n) => Number.isInteger(n) && n >= 0) ? [...new Set(numbers)] : undefined;
  }
  const number = Number(text);
  if (text === "" || !Number.isFinite(number) || number < 0) return undefined;
  return key === "threshold" ? Math.min(number, 1) : Math.floor(number);
}
