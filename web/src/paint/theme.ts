// Colors: mixtures and ramps, and the light and dark theme of pages and reports.

export type Rgb = readonly [red: number, green: number, blue: number];

export function cssOf([red, green, blue]: Rgb, alpha = 1): string {
  return alpha >= 1
    ? `rgb(${red},${green},${blue})`
    : `rgba(${red},${green},${blue},${Math.max(0, alpha).toFixed(3)})`;
}

export function rgbOfHex(hex: string): Rgb {
  const value = Number.parseInt(hex.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

export function mix(from: Rgb, to: Rgb, share: number): Rgb {
  const part = (i: number) => Math.round(from[i] + (to[i] - from[i]) * share);
  return [part(0), part(1), part(2)];
}

function ramp(stops: readonly Rgb[]): Rgb[] {
  return Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (stops.length - 1);
    const index = Math.min(Math.floor(place), stops.length - 2);
    return mix(stops[index], stops[index + 1], place - index);
  });
}

/** Opaque RGBA pixels. */
export function pixelsOf(count: number, color: (i: number) => Rgb): Uint8ClampedArray<ArrayBuffer> {
  const pixels = new Uint8ClampedArray(4 * count).fill(255);
  for (let i = 0; i < count; i++) {
    const [red, green, blue] = color(i);
    pixels[4 * i] = red;
    pixels[4 * i + 1] = green;
    pixels[4 * i + 2] = blue;
  }
  return pixels;
}

export type Scheme = "light" | "dark";

const TONES = {
  paper: ["#fbfaf7", "#14171b"],
  panel: ["#ffffff", "#1a1e23"],
  raised: ["#f3f1ec", "#22272d"],
  line: ["#e4e1da", "#2b3037"],
  strong: ["#cfcbc2", "#414851"],
  ink: ["#1b2026", "#eceae4"],
  soft: ["#566069", "#a9b0b8"],
  accent: ["#0b6bb0", "#5db2f2"],
  wash: ["#e7eef6", "#1f2f40"],
  positive: ["#0b6bb0", "#5db2f2"],
  negative: ["#c65312", "#ff9455"],
  missing: ["#b9a6c9", "#7b6690"],
  // Two inputs, and the edges of their columns.
  a: ["#e7eef6", "#1f2f40"],
  aedge: ["#9fbbd6", "#46698d"],
  b: ["#f6ede0", "#382c1d"],
  bedge: ["#d8b98b", "#86683d"],
  before: ["#b9bec5", "#59626c"],
  // `negative` as a text color.
  fall: ["#b0450c", "#ff9455"],
} as const;

const HEAT = {
  light: ["#fcfcfa", "#cfdfec", "#7fabd0", "#2f6ea6", "#0c2c4d"],
  dark: ["#171b20", "#1e3c58", "#2f72a8", "#79b8ea", "#f1f8ff"],
} as const;

const SCALE = {
  light: ["#3a4f8f", "#2b7f93", "#5aa37a", "#c2a43c", "#d0662a"],
  dark: ["#7089d6", "#45a5b8", "#7cc79a", "#e0c65c", "#f08a4b"],
} as const;

type Tone = keyof typeof TONES;

export interface Theme {
  readonly scheme: Scheme;
  readonly tone: Readonly<Record<Tone, string>>;
  readonly rgb: Readonly<Record<Tone, Rgb>>;
  readonly heat: readonly Rgb[];
  readonly scale: readonly Rgb[];
}

export function themeOf(scheme: Scheme): Theme {
  const made = themes.get(scheme) ?? themeIn(scheme);
  themes.set(scheme, made);
  return made;
}

/** Themes, each created once, so that equal themes are identical objects. */
const themes = new Map<Scheme, Theme>();

function themeIn(scheme: Scheme): Theme {
  const tones = <T>(convert: (hex: string) => T) =>
    Object.fromEntries(
      Object.entries(TONES).map(([name, [light, dark]]) => [
        name,
        convert(scheme === "light" ? light : dark),
      ]),
    ) as Record<Tone, T>;
  return {
    scheme,
    tone: tones((hex) => hex),
    rgb: tones(rgbOfHex),
    heat: ramp(HEAT[scheme].map(rgbOfHex)),
    scale: ramp(SCALE[scheme].map(rgbOfHex)),
  };
}

/** Fonts of controls and of text; style sheets use `--sans` and `--serif`. */
export const SANS = 'Inter, "Helvetica Neue", Arial, "Liberation Sans", "Noto Sans", sans-serif';
export const SERIF = 'Charter, "Iowan Old Style", Georgia, "Liberation Serif", "Noto Serif", serif';

/** Set the theme's colors and fonts as CSS variables. */
export function applyTheme(element: HTMLElement, theme: Theme): void {
  for (const [name, value] of Object.entries(theme.tone)) {
    element.style.setProperty(`--${name}`, value);
  }
  element.style.setProperty("--sans", SANS);
  element.style.setProperty("--serif", SERIF);
  element.style.setProperty("color-scheme", theme.scheme);
}
