// Colors by calculation: mixtures and ramps.

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

/** 256 colors through evenly spaced stops. */
export function ramp(stops: readonly Rgb[]): Rgb[] {
  return Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (stops.length - 1);
    const index = Math.min(Math.floor(place), stops.length - 2);
    return mix(stops[index], stops[index + 1], place - index);
  });
}

/** Opaque pixels, RGBA one after the other. */
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
