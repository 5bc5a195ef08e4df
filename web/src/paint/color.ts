// Colors by calculation: OKLCH to sRGB, ramps, and head colors that stay distinct.

export type Rgb = readonly [red: number, green: number, blue: number];

/** sRGB (0–255) of a color in OKLab; components may lie outside when it has none. */
function rgbOfOklab(lightness: number, a: number, b: number): [number, number, number] {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    gamma(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    gamma(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    gamma(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  ];
}

function gamma(linear: number): number {
  const value = linear <= 0.0031308 ? 12.92 * linear : 1.055 * linear ** (1 / 2.4) - 0.055;
  return 255 * value;
}

/** sRGB of an OKLCH color, with as much of its chroma as the screen has. */
export function rgbOfOklch(lightness: number, chroma: number, hue: number): Rgb {
  const angle = (hue * Math.PI) / 180;
  for (let c = chroma; ; c -= 0.004) {
    const rgb = rgbOfOklab(lightness, c * Math.cos(angle), c * Math.sin(angle));
    if (c <= 0 || rgb.every((part) => part >= -0.5 && part <= 255.5)) {
      return rgb.map((part) => Math.round(Math.min(255, Math.max(0, part)))) as unknown as Rgb;
    }
  }
}

const LEVELS = { light: [0.52, 0.66, 0.4], dark: [0.72, 0.86, 0.6] } as const;
const FIRST_HUE = 252;

/** One color per head. Neighbors lie far apart in hue; no two are the same. */
export function headColors(count: number, scheme: "light" | "dark"): Rgb[] {
  const levels = LEVELS[scheme];
  const used = count <= 6 ? 1 : count <= 14 ? 2 : 3;
  const stride = strideOf(count);
  return Array.from({ length: count }, (_, head) => {
    const place = (head * stride) % count;
    return rgbOfOklch(levels[place % used], 0.15, FIRST_HUE + (360 * place) / count);
  });
}

/** A step near the golden section of `count` that visits every place. */
function strideOf(count: number): number {
  const common = (a: number, b: number): number => (b === 0 ? a : common(b, a % b));
  let stride = Math.max(1, Math.round(count * 0.382));
  while (common(stride, count) !== 1) stride++;
  return stride;
}

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

/** 256 colors through evenly spaced stops. */
export function ramp(stops: readonly Rgb[]): Rgb[] {
  return Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (stops.length - 1);
    const index = Math.min(Math.floor(place), stops.length - 2);
    return mix(stops[index], stops[index + 1], place - index);
  });
}
