// Roles of heads: name, symbol and color, the same on pages and in reports; and series colors.

import type { RoleId } from "../../generated/payload.ts";
import { cssOf, type Rgb, rgbOfHex, type Scheme, type Theme } from "./theme.ts";

export interface RoleLook {
  readonly id: RoleId | "unnamed";
  readonly symbol: string;
  readonly short: string;
  readonly name: string;
  readonly light: string;
  readonly dark: string;
  readonly description: string;
}

const NAMED = [
  ["duplicate_token", "⇄", "dup", "duplicate token", "#b8440d", "#f57f4f"],
  ["induction", "↷", "ind", "induction", "#d9a53a", "#f9d467"],
  ["previous_token", "←", "prev", "previous token", "#054c7a", "#599ef3"],
  ["next_token", "→", "next", "next token", "#17a3e9", "#b3defb"],
  ["current_token", "↺", "self", "current token", "#8e31c2", "#a04ecc"],
  ["broad", "≋", "broad", "broad attention", "#38966f", "#55d5b1"],
  ["first_token", "⇤", "first", "first token", "#5a6673", "#939aa3"],
  ["special_token", "‖", "sep", "special tokens", "#9da4ad", "#667483"],
  ["punctuation", "·", "punct", "punctuation", "#c2ccd6", "#48525e"],
  // Lines of a head without a role have a color, its swatch is hollow.
  ["unnamed", "", "", "no single role", "#b3145e", "#ff86bb"],
] as const;

const DESCRIPTIONS: Record<RoleLook["id"], string> = {
  duplicate_token:
    "reads the same word at another place, in the other sentence where there are two",
  induction: "reads what followed the same token earlier in the text",
  previous_token: "reads the token right before",
  next_token: "reads the token right after",
  current_token: "reads the token itself",
  broad: "spreads over at least half of what it can see",
  first_token: "attention sink: reads the first token",
  special_token: "attention sink: reads tokens like [SEP] that mark where a text ends",
  punctuation: "attention sink: reads periods and commas",
  unnamed: "no rule describes most of what it reads",
};

/** All roles; the last is that of heads without one. */
export const ROLES: readonly RoleLook[] = NAMED.map(([id, symbol, short, name, light, dark]) => ({
  ...{ id, symbol, short, name, light, dark },
  description: DESCRIPTIONS[id],
}));

export function roleLook(id: string | null): RoleLook {
  return ROLES.find((role) => role.id === id) ?? ROLES[ROLES.length - 1];
}

export function roleColor(role: RoleLook, scheme: Scheme): Rgb {
  return rgbOfHex(role[scheme]);
}

/** Choose black or white ink, whichever has more contrast on a color. */
export function inkOn([red, green, blue]: Rgb): string {
  const linear = (part: number) => ((part / 255 + 0.055) / 1.055) ** 2.4;
  const light = 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
  return light > 0.19 ? "#14171b" : "#ffffff";
}

/** Hues of heads drawn over one another, at least 11 apart in OKLab × 100, also for readers with
 *  deuteranopia, protanopia or tritanopia. */
const HEADS = {
  light: "#3b1f9a #b55a20 #4488c5 #701319 #8000e0 #006080",
  dark: "#5c6bce #dc5c2d #8ff882 #f49beb #a04080 #c080a0",
} as const;

/** Hue of the n-th head of several. */
export function headHue(index: number, scheme: Scheme): Rgb {
  const hues = HEADS[scheme].split(" ");
  return rgbOfHex(hues[index % hues.length]);
}

/** Palette of Okabe and Ito (2008), safe for color-blind readers, toned for each scheme. */
const SERIES = {
  light:
    "#1d6fb0 #d9822b #0b8f6b #b8508a #7a5cc0 #3fa3d1 #a08c00 #c8442e " +
    "#5f6b76 #3c8a2e #8f3f71 #1f7a8c #b86b00 #6b4a2b #4a54a8 #d46a9f",
  dark:
    "#6cb0ee #f0a050 #3fc79c #e58abb #ab93ea #7fd0f5 #d8c440 #f0796a " +
    "#a3afba #86cf74 #c98bd0 #5cc4d6 #ffb84d #c9a383 #8f9cf0 #ff9ec7",
} as const;
const COLORS = 16;
const SHADES = 64;

export function seriesColor(index: number): string {
  return `var(--c${index % COLORS})`;
}

/** Shade of a value from 0 to 1 as a CSS variable. */
export function shade(share: number): string {
  return `var(--h${Math.round(Math.min(1, Math.max(0, share)) * (SHADES - 1))})`;
}

/** CSS variables of drawings: light, dark and print need no redrawing. */
export function colorVariables(theme: Theme): Map<string, string> {
  const variables = new Map<string, string>();
  for (const [name, value] of Object.entries(theme.tone)) variables.set(`--${name}`, value);
  for (let i = 0; i < SHADES; i++) {
    variables.set(`--h${i}`, cssOf(theme.heat[Math.round((i / (SHADES - 1)) * 255)]));
  }
  for (const role of ROLES) {
    variables.set(`--role-${role.id}`, role[theme.scheme]);
    variables.set(`--on-${role.id}`, inkOn(roleColor(role, theme.scheme)));
  }
  SERIES[theme.scheme].split(" ").forEach((value, i) => {
    variables.set(`--c${i}`, value);
  });
  return variables;
}

const OTHER = "other";

/** Sort role names by their number of heads, most first; heads without a role last. */
export function rolesByCount(names: readonly string[]): string[] {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  const size = (name: string) => (name === OTHER ? 0 : counts.get(name)!);
  return [...counts.keys()].sort((a, b) => size(b) - size(a));
}

/** Style of a head's dot. Roles have their color; other names, such as relations, have series
 *  colors, and rings where these run out. */
export function dotStyle(name: string, names: readonly string[]): Record<string, string | number> {
  if (name === OTHER) return { class: "dot", fill: "var(--strong)" };
  const roleOf = (label: string) => ROLES.find(({ name, id }) => name === label || id === label);
  const role = roleOf(name);
  if (role) return { class: "dot", fill: `var(--role-${role.id})` };
  const index = names.filter((label) => !roleOf(label)).indexOf(name);
  // Steps of 3 pass over the blues, which are roles of position, first.
  const color = seriesColor(3 * (index + 1));
  if (index < COLORS) return { class: "dot", fill: color };
  return { class: "ring", fill: "var(--paper)", stroke: color, "stroke-width": 2 };
}

export function layerShade(layer: number, layers: readonly number[]): string {
  const last = Math.max(1, layers.length - 1);
  return shade(0.28 + (0.66 * layers.indexOf(layer)) / last);
}
