// The colors of drawings as CSS variables, so that light, dark and print need no redrawing.

import { inkOn, ROLES, roleColor } from "../paint/roles.ts";
import { applyTheme, cssOf, type Theme } from "../paint/theme.ts";
import { COLORS, SHADES } from "./draw.ts";

/** Okabe and Ito's palette (2008), which color-blind readers tell apart, toned for each scheme. */
const SERIES = {
  light: [
    "#1d6fb0",
    "#d9822b",
    "#0b8f6b",
    "#b8508a",
    "#7a5cc0",
    "#3fa3d1",
    "#a08c00",
    "#c8442e",
    "#5f6b76",
    "#3c8a2e",
    "#8f3f71",
    "#1f7a8c",
    "#b86b00",
    "#6b4a2b",
    "#4a54a8",
    "#d46a9f",
  ],
  dark: [
    "#6cb0ee",
    "#f0a050",
    "#3fc79c",
    "#e58abb",
    "#ab93ea",
    "#7fd0f5",
    "#d8c440",
    "#f0796a",
    "#a3afba",
    "#86cf74",
    "#c98bd0",
    "#5cc4d6",
    "#ffb84d",
    "#c9a383",
    "#8f9cf0",
    "#ff9ec7",
  ],
} as const;

export function variablesOf(theme: Theme): Map<string, string> {
  const found = new Map<string, string>();
  for (const [name, value] of Object.entries(theme.tone)) found.set(`--${name}`, value);
  for (let i = 0; i < SHADES; i++) {
    found.set(`--h${i}`, cssOf(theme.heat[Math.round((i / (SHADES - 1)) * 255)]));
  }
  for (const role of ROLES) {
    found.set(`--role-${role.id}`, role[theme.scheme]);
    found.set(`--on-${role.id}`, inkOn(roleColor(role, theme.scheme)));
  }
  for (let i = 0; i < COLORS; i++) found.set(`--c${i}`, SERIES[theme.scheme][i]);
  return found;
}

export function applyColors(element: HTMLElement, theme: Theme): void {
  applyTheme(element, theme);
  for (const [name, value] of variablesOf(theme)) element.style.setProperty(name, value);
}
