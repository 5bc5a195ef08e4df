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

/** Ramp of 256 colors through evenly spaced stops. */
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
  light: {
    paper: "#fbfaf7",
    panel: "#ffffff",
    raised: "#f3f1ec",
    line: "#e4e1da",
    strong: "#cfcbc2",
    ink: "#1b2026",
    soft: "#566069",
    accent: "#0b6bb0",
    wash: "#e7eef6",
    positive: "#0b6bb0",
    negative: "#c65312",
    missing: "#b9a6c9",
    /** Two inputs, and the edges of their columns. */
    a: "#e7eef6",
    aedge: "#9fbbd6",
    b: "#f6ede0",
    bedge: "#d8b98b",
    before: "#b9bec5",
    /** `negative` as a text color. */
    fall: "#b0450c",
  },
  dark: {
    paper: "#14171b",
    panel: "#1a1e23",
    raised: "#22272d",
    line: "#2b3037",
    strong: "#414851",
    ink: "#eceae4",
    soft: "#a9b0b8",
    accent: "#5db2f2",
    wash: "#1f2f40",
    positive: "#5db2f2",
    negative: "#ff9455",
    missing: "#7b6690",
    a: "#1f2f40",
    aedge: "#46698d",
    b: "#382c1d",
    bedge: "#86683d",
    before: "#59626c",
    fall: "#ff9455",
  },
} as const;

const HEAT = {
  light: ["#fcfcfa", "#cfdfec", "#7fabd0", "#2f6ea6", "#0c2c4d"],
  dark: ["#171b20", "#1e3c58", "#2f72a8", "#79b8ea", "#f1f8ff"],
} as const;

/** Colors of head statistics, low to high. */
const SCALE = {
  light: ["#3a4f8f", "#2b7f93", "#5aa37a", "#c2a43c", "#d0662a"],
  dark: ["#7089d6", "#45a5b8", "#7cc79a", "#e0c65c", "#f08a4b"],
} as const;

type Tone = keyof (typeof TONES)["light"];

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
  const tone = TONES[scheme];
  const rgb = Object.fromEntries(Object.entries(tone).map(([name, hex]) => [name, rgbOfHex(hex)]));
  return {
    scheme,
    tone,
    rgb: rgb as Record<Tone, Rgb>,
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
