// Thumbnails of every head as pixels.

import type { Lens } from "../data/lens.ts";
import { mix, type Rgb } from "../paint/color.ts";
import type { Theme } from "../paint/theme.ts";
import type { Overview, Thumb } from "./overview.ts";
import type { ImageMark } from "./scene.ts";
import { drawHeat, drawLines, LINES_LIMIT, type Pooled, pool, poolingOf } from "./thumbnail.ts";

export interface PictureInput {
  readonly lenses: readonly Lens[];
  readonly specials: boolean;
  /** Whether to show second − first. */
  readonly difference: boolean;
  readonly overview: Overview;
  readonly theme: Theme;
  /** Pixels per CSS pixel. */
  readonly ratio: number;
  /** The ink of a head; null for the theme's heat. */
  ink(thumb: Thumb): Rgb | null;
}

/** One picture per thumbnail, in the overview's order. */
export function pictures(input: PictureInput): ImageMark[] {
  const { overview, theme } = input;
  const size = Math.round(overview.size * input.ratio);
  const lens = input.lenses[0];
  const isLines = Math.max(lens.rows.length, lens.columns.length) <= LINES_LIMIT;
  const limit = isLines ? LINES_LIMIT : Math.min(size, 96);
  const poolings = input.lenses.map((one) => poolingOf(one, limit, input.specials));
  const intensities = new Float32Array(size * size);
  return overview.thumbs.map((thumb) => {
    const { layerIndex, head } = thumb;
    let pooled: Pooled = pool(lens.block.planes, layerIndex, head, poolings[0]);
    if (input.difference) {
      const second = pool(input.lenses[1].block.planes, layerIndex, head, poolings[1]);
      // Differences are small: their square roots are drawn.
      const weights = pooled.weights.map((weight, i) => {
        const change = second.weights[i] - weight;
        return Math.sign(change) * Math.sqrt(Math.abs(change));
      });
      pooled = { ...pooled, weights };
    }
    if (isLines) drawLines(pooled, size, intensities);
    else drawHeat(pooled, size, intensities);
    const pixels = colored(intensities, theme, input.ink(thumb), input.difference);
    const { x, y } = thumb;
    const { size: width } = overview;
    return {
      kind: "image",
      x,
      y,
      width,
      height: width,
      columns: size,
      rows: size,
      pixels,
      smooth: true,
    };
  });
}

function colored(
  intensities: Float32Array,
  theme: Theme,
  ink: Rgb | null,
  signed: boolean,
): Uint8ClampedArray<ArrayBuffer> {
  const pixels = new Uint8ClampedArray(intensities.length * 4);
  const paper = theme.rgb.panel;
  for (let i = 0; i < intensities.length; i++) {
    const value = Math.min(1, Math.abs(intensities[i]));
    let color: Rgb;
    if (signed)
      color = mix(paper, intensities[i] >= 0 ? theme.rgb.positive : theme.rgb.negative, value);
    else if (ink) color = value === 0 ? paper : mix(paper, ink, value);
    else color = theme.heat[Math.round(value * 255)];
    pixels[4 * i] = color[0];
    pixels[4 * i + 1] = color[1];
    pixels[4 * i + 2] = color[2];
    pixels[4 * i + 3] = 255;
  }
  return pixels;
}
