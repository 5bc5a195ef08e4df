// Layout of one head as lines between two columns of words, and the lines as marks.

import { type Focus, type Matrix, rowWeights } from "../data/filtered_block.ts";
import type { Entry } from "../data/tokens.ts";
import { cssOf, type Rgb, type Theme } from "../paint/theme.ts";
import type { CurveMark, Mark } from "./scene.ts";

export interface Columns {
  readonly width: number;
  readonly height: number;
  readonly rowHeight: number;
  readonly fontSize: number;
  readonly top: number;
  /** Right edge of query labels, left edge of key labels. */
  readonly labels: { readonly left: number; readonly right: number; readonly width: number };
  readonly lines: { readonly left: number; readonly right: number };
  /** Position of the weights; length of bars beside them. */
  readonly numbers: { readonly x: number; readonly bar: number };
  readonly readers: number;
}

interface ColumnsInput {
  readonly width: number;
  readonly height: number;
  readonly rows: number;
  readonly columns: number;
  /** Widest labels of the two columns, in ems. */
  readonly rowEms: number;
  readonly columnEms: number;
  readonly least: number;
  /** Minimum width for weights beside the words. */
  readonly numbers?: number;
}

export function columnsOf(input: ColumnsInput): Columns {
  const longest = Math.max(input.rows, input.columns, 1);
  const top = 4;
  const rowHeight = Math.min(
    46,
    Math.max(input.least, Math.floor((input.height - 2 * top) / longest)),
  );
  const fontSize = rowHeight >= 26 ? 17 : rowHeight >= 20 ? 15 : rowHeight >= 16 ? 13 : 11.5;
  const usual = input.width >= 560 ? 118 : input.width >= 330 ? 62 : 46;
  const numbers = input.width >= 560 ? Math.max(usual, input.numbers ?? 0) : usual;
  const readers = 44;
  const most = Math.max(40, (input.width - numbers - readers) * 0.28);
  const left = Math.min(most, input.rowEms * fontSize + 12);
  const right = Math.min(most, Math.max(56, input.columnEms * fontSize + 14));
  const labelLeft = readers + left;
  const labelRight = input.width - numbers - right;
  // Longer lines are harder to follow.
  const spare = Math.max(0, labelRight - labelLeft - 460) / 2;
  return {
    width: input.width,
    height: longest * rowHeight + 2 * top,
    rowHeight,
    fontSize,
    top,
    labels: { left: labelLeft + spare, right: labelRight - spare, width: right },
    lines: { left: labelLeft + spare + 12, right: labelRight - spare - 10 },
    numbers: { x: labelRight - spare + right + 8, bar: numbers >= 110 ? usual - 50 : 0 },
    readers,
  };
}

export function rowY(columns: Columns, row: number): number {
  return columns.top + (row + 0.5) * columns.rowHeight;
}

export interface LinesInput {
  readonly matrix: Matrix;
  readonly rows: readonly Entry[];
  readonly keys: readonly Entry[];
  readonly focus: Focus;
  readonly above: number;
  readonly top: number;
  readonly dims: boolean;
  readonly color: Rgb;
  /** Whether the head is off: its attention is drawn dashed. */
  readonly dashed: boolean;
  /** Factor by which weights of the row in focus are drawn larger. */
  readonly scale?: number;
  /** Part of the drawing that is shown; lines beside it are left out. */
  readonly view?: { readonly top: number; readonly bottom: number };
  /** Whether only the row or column in focus is drawn. */
  readonly isAlone?: boolean;
}

export function lineWidth(weight: number): number {
  return 0.8 + 5.2 * Math.min(1, weight);
}

/** Build all lines of the row or column in focus, and behind a row the strongest line of each
 *  other word. Without a focus, the strongest line of each word. */
export function lineMarks(input: LinesInput, columns: Columns, theme: Theme): Mark[] {
  const { matrix, focus, above, dashed, scale = 1, view } = input;
  const isShown = (row: number, key: number) => {
    const [a, b] = [rowY(columns, row), rowY(columns, key)];
    return !view || (Math.min(a, b) <= view.bottom && Math.max(a, b) >= view.top);
  };
  const color = cssOf(input.color);
  const isFree = focus.row < 0 && focus.column < 0;
  const curve = (
    row: number,
    key: number,
    style: Pick<CurveMark, "color" | "opacity" | "width">,
  ): CurveMark => ({
    kind: "curve",
    x1: columns.lines.left,
    y1: rowY(columns, row),
    x2: columns.lines.right,
    y2: rowY(columns, key),
    dashed,
    ...style,
  });
  const focused = (row: number, key: number, weight: number, most: number) =>
    curve(row, key, {
      color,
      opacity: 0.25 + 0.75 * Math.min(1, weight / Math.max(most, 1e-6)),
      width: lineWidth(weight * scale),
    });
  const quiet = (row: number, key: number, weight: number) => {
    const isBack = input.dims && (input.keys[key].special || input.rows[row].special);
    const seen = weight * (isBack ? 0.4 : 1);
    const style = isFree
      ? { opacity: 0.25 + 0.65 * seen, width: lineWidth(weight) * 0.6 }
      : { opacity: 0.3 + 0.3 * seen, width: 0.8 + 1.4 * weight };
    return curve(row, key, { ...style, color: isFree && !isBack ? color : theme.tone.strong });
  };
  const [behind, front]: [CurveMark[], CurveMark[]] = [[], []];
  for (let row = 0; row < matrix.rows; row++) {
    const weights = rowWeights(matrix, row);
    if (row === focus.row) {
      const keys = strongest(weights, input.top);
      const shown = keys.filter((key) => weights[key] >= above && isShown(row, key));
      front.push(...shown.map((key) => focused(row, key, weights[key], weights[keys[0]])));
    } else if (focus.column >= 0) {
      const weight = weights[focus.column];
      if (focus.row < 0 && weight >= above && isShown(row, focus.column))
        front.push(focused(row, focus.column, weight, 1));
    } else if (isFree || !input.isAlone) {
      const key = strongestOf(matrix)[row];
      if (weights[key] > 0 && weights[key] >= above && isShown(row, key))
        behind.push(quiet(row, key, weights[key]));
    }
  }
  return [...behind, ...front.sort((a, b) => a.width - b.width)];
}

const strongestKeys = new WeakMap<Matrix, Int32Array>();

/** Strongest key of each row, searched once. */
function strongestOf(matrix: Matrix): Int32Array {
  let keys = strongestKeys.get(matrix);
  if (!keys) {
    keys = Int32Array.from({ length: matrix.rows }, (_, row) => {
      const weights = rowWeights(matrix, row);
      let best = 0;
      for (let i = 1; i < weights.length; i++)
        if (weights[i] > weights[best] || Number.isNaN(weights[best])) best = i;
      return best;
    });
    strongestKeys.set(matrix, keys);
  }
  return keys;
}

/** Sort columns by weight, strongest first; keep `top` of them, or all for 0. */
function strongest(row: Float32Array, top: number): number[] {
  const order = Array.from(row.keys()).filter((i) => row[i] > 0);
  order.sort((a, b) => row[b] - row[a]);
  return top > 0 ? order.slice(0, top) : order;
}
