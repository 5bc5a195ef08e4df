// The head view's geometry: two token columns, the lines between them, cells on the outside.

export interface ColumnsInput {
  readonly width: number;
  readonly height: number;
  readonly rows: number;
  readonly columns: number;
  /** Widest label of each column in ems. */
  readonly rowEms: number;
  readonly columnEms: number;
  /** Series drawn; each has a cell beside a token. */
  readonly series: number;
}

export interface Columns {
  readonly width: number;
  readonly rowHeight: number;
  readonly fontSize: number;
  /** Height of the content; more than the pane's when it scrolls. */
  readonly height: number;
  readonly top: number;
  readonly cellWidth: number;
  readonly cells: { readonly left: number; readonly right: number; readonly width: number };
  /** Labels: query labels end, key labels start here. */
  readonly labels: {
    readonly left: number;
    readonly right: number;
    readonly leftWidth: number;
    readonly rightWidth: number;
  };
  /** Lines run between these. */
  readonly lines: { readonly left: number; readonly right: number };
}

const PAD = 14;
const GAP = 7;
const MIN_ROW = 13;
const MAX_ROW = 34;

export function columnsOf(input: ColumnsInput): Columns {
  const longest = Math.max(input.rows, input.columns, 1);
  const top = 8;
  const rowHeight = Math.min(
    MAX_ROW,
    Math.max(MIN_ROW, Math.floor((input.height - 2 * top) / longest)),
  );
  const fontSize = [30, 20, 15].reduce((size, height) => size + (rowHeight >= height ? 1 : 0), 11);
  const roomy = input.width >= 520;
  const cellsWidth =
    input.series === 1
      ? roomy
        ? 74
        : 56
      : Math.min(roomy ? 110 : 70, Math.max(40, input.series * 10));
  const cellWidth = input.series === 1 ? cellsWidth - 36 : cellsWidth / input.series;
  const most = Math.max(40, (input.width - 2 * cellsWidth - 2 * PAD) * 0.3);
  const leftWidth = Math.min(most, Math.ceil(input.rowEms * fontSize) + 4);
  const rightWidth = Math.min(most, Math.ceil(input.columnEms * fontSize) + 4);
  const cellsLeft = PAD;
  const labelsLeft = cellsLeft + cellsWidth + GAP + leftWidth;
  const cellsRight = input.width - PAD - cellsWidth;
  const labelsRight = cellsRight - GAP - rightWidth;
  const wanted = Math.max(labelsRight - labelsLeft, 40);
  // Lines longer than this say no more and are harder to follow.
  const spare = Math.max(0, wanted - Math.max(420, input.width * 0.62));
  return {
    width: input.width,
    rowHeight,
    fontSize,
    height: longest * rowHeight + 2 * top,
    top,
    cellWidth,
    cells: { left: cellsLeft + spare / 2, right: cellsRight - spare / 2, width: cellsWidth },
    labels: { left: labelsLeft + spare / 2, right: labelsRight - spare / 2, leftWidth, rightWidth },
    lines: { left: labelsLeft + spare / 2 + GAP, right: labelsRight - spare / 2 - GAP },
  };
}

/** Middle of a row. */
export function rowY(columns: Columns, row: number): number {
  return columns.top + (row + 0.5) * columns.rowHeight;
}

/** Row at a height, or -1. */
export function rowAt(columns: Columns, y: number, count: number): number {
  const row = Math.floor((y - columns.top) / columns.rowHeight);
  return row >= 0 && row < count ? row : -1;
}
