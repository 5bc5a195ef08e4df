// The model view's geometry: thumbnails of one fixed size in a table, or sorted in rows.

export interface Thumb {
  readonly layer: number;
  readonly layerIndex: number;
  readonly head: number;
  readonly x: number;
  readonly y: number;
}

export interface Overview {
  readonly size: number;
  readonly gap: number;
  readonly width: number;
  readonly height: number;
  /** Room for layer numbers at the left and head numbers on top (0 when sorted). */
  readonly left: number;
  readonly top: number;
  /** Height of the label under each thumbnail when sorted. */
  readonly caption: number;
  readonly thumbs: readonly Thumb[];
}

export interface OverviewInput {
  readonly width: number;
  readonly height: number;
  readonly layers: readonly number[];
  readonly heads: number;
  has(layerIndex: number, head: number): boolean;
  /** Value to sort by, highest first; null to keep the model's table. */
  readonly rank: ((layerIndex: number, head: number) => number | null) | null;
}

const SMALLEST = 22;
const LARGEST = 112;
/** A table that has to scroll shows so many layers at once, where its width allows. */
const ROWS_SHOWN = 9;
const LEFT = 30;
const TOP = 20;
const CAPTION = 13;

export function overviewOf(input: OverviewInput): Overview {
  const cells: { layer: number; layerIndex: number; head: number }[] = [];
  input.layers.forEach((layer, layerIndex) => {
    for (let head = 0; head < input.heads; head++) {
      if (input.has(layerIndex, head)) cells.push({ layer, layerIndex, head });
    }
  });
  return input.rank ? ranked(input, cells, input.rank) : table(input, cells);
}

type Cell = { layer: number; layerIndex: number; head: number };

function table(input: OverviewInput, cells: Cell[]): Overview {
  const rows = input.layers.length;
  const fitted = (room: number, count: number) => Math.floor(room / count);
  const across = fitted(input.width - LEFT - 8, input.heads);
  const down = fitted(input.height - TOP - 8, rows);
  // Fit both ways where that leaves something to see; otherwise scroll, and see it well.
  const scrolling = Math.max(38, fitted(input.height - TOP - 8, ROWS_SHOWN));
  const pitch = Math.min(across, down >= SMALLEST + 3 ? down : scrolling);
  const step = Math.max(SMALLEST + 3, Math.min(pitch, LARGEST));
  const gap = step >= 48 ? 6 : step >= 32 ? 4 : 3;
  const thumbs = cells.map((cell) => ({
    ...cell,
    x: LEFT + cell.head * step,
    y: TOP + cell.layerIndex * step,
  }));
  return {
    size: step - gap,
    gap,
    width: LEFT + input.heads * step + 8,
    height: TOP + rows * step + 8,
    left: LEFT,
    top: TOP,
    caption: 0,
    thumbs,
  };
}

function ranked(
  input: OverviewInput,
  cells: Cell[],
  rank: (layerIndex: number, head: number) => number | null,
): Overview {
  const value = (cell: Cell) => rank(cell.layerIndex, cell.head) ?? Number.NEGATIVE_INFINITY;
  const order = cells.slice().sort((a, b) => value(b) - value(a));
  const gap = 5;
  let step = LARGEST;
  const across = () => Math.max(1, Math.floor((input.width - 12) / step));
  while (step > 40 && Math.ceil(order.length / across()) * (step + CAPTION) > input.height - 12) {
    step--;
  }
  const columns = across();
  const thumbs = order.map((cell, i) => ({
    ...cell,
    x: 8 + (i % columns) * step,
    y: 6 + Math.floor(i / columns) * (step + CAPTION),
  }));
  return {
    size: step - gap,
    gap,
    width: 8 + columns * step,
    height: 12 + Math.ceil(order.length / columns) * (step + CAPTION),
    left: 0,
    top: 0,
    caption: CAPTION,
    thumbs,
  };
}

export function thumbAt(overview: Overview, x: number, y: number): Thumb | null {
  const { size, caption } = overview;
  for (const thumb of overview.thumbs) {
    const inside =
      x >= thumb.x && x < thumb.x + size && y >= thumb.y && y < thumb.y + size + caption;
    if (inside) return thumb;
  }
  return null;
}
