// Light and dark: every color of the explorer, for the style sheet and the canvases alike.

import { headColors, type Rgb, ramp, rgbOfHex } from "./color.ts";

export type Scheme = "light" | "dark";

const TONES = {
  light: {
    paper: "#fcfcfa",
    panel: "#ffffff",
    raised: "#f3f4f1",
    line: "#e2e4df",
    strong: "#c3c7c0",
    ink: "#1b2127",
    soft: "#586069",
    accent: "#1d5c94",
    wash: "#e3edf6",
    positive: "#2467a8",
    negative: "#cf6a12",
    missing: "#b9a6c9",
    warn: "#8a4b08",
  },
  dark: {
    paper: "#121519",
    panel: "#171b20",
    raised: "#20262c",
    line: "#2a3138",
    strong: "#434c55",
    ink: "#e4e8eb",
    soft: "#9ba6b0",
    accent: "#7fb6e6",
    wash: "#1f3345",
    positive: "#6cb0ee",
    negative: "#f0953c",
    missing: "#7b6690",
    warn: "#f0b35f",
  },
} as const;

const HEAT = {
  light: ["#fcfcfa", "#cfdfec", "#7fabd0", "#2f6ea6", "#0c2c4d"],
  dark: ["#171b20", "#1e3c58", "#2f72a8", "#79b8ea", "#f1f8ff"],
} as const;

/** Statistics of heads, low to high. */
const SCALE = {
  light: ["#3a4f8f", "#2b7f93", "#5aa37a", "#c2a43c", "#d0662a"],
  dark: ["#7089d6", "#45a5b8", "#7cc79a", "#e0c65c", "#f08a4b"],
} as const;

export type Tone = keyof (typeof TONES)["light"];

export interface Theme {
  readonly scheme: Scheme;
  readonly tone: Readonly<Record<Tone, string>>;
  readonly rgb: Readonly<Record<Tone, Rgb>>;
  /** Colors of weights from 0 to 1. */
  readonly heat: readonly Rgb[];
  readonly scale: readonly Rgb[];
  heads(count: number): readonly Rgb[];
}

export function themeOf(scheme: Scheme): Theme {
  const tone = TONES[scheme];
  const rgb = Object.fromEntries(Object.entries(tone).map(([name, hex]) => [name, rgbOfHex(hex)]));
  const known = new Map<number, readonly Rgb[]>();
  return {
    scheme,
    tone,
    rgb: rgb as Record<Tone, Rgb>,
    heat: ramp(HEAT[scheme].map(rgbOfHex)),
    scale: ramp(SCALE[scheme].map(rgbOfHex)),
    heads(count) {
      if (!known.has(count)) known.set(count, headColors(count, scheme));
      return known.get(count)!;
    },
  };
}

/** The one font stack: style sheets read it as `--sans`. */
export const SANS = 'system-ui, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif';

/** Hand the theme's tones, and the font, to the style sheet. */
export function applyTheme(element: HTMLElement, theme: Theme): void {
  for (const [name, value] of Object.entries(theme.tone)) {
    element.style.setProperty(`--${name}`, value);
  }
  element.style.setProperty("--sans", SANS);
  element.style.setProperty("color-scheme", theme.scheme);
}
