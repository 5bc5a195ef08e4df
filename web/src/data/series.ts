// What the head view draws: one series per head, or one for an average or maximum of many.

import { layerIndex, type Selection } from "../state/selection.ts";
import { combine, difference, type Lens, type Matrix } from "./lens.ts";

export interface Series {
  readonly label: string;
  /** Head whose color it takes; null for combined series. */
  readonly head: number | null;
  readonly matrix: Matrix;
  /** Whether weights are differences, from -1 to 1. */
  readonly signed: boolean;
}

export function seriesOf(lens: Lens, selection: Selection): Series[] {
  const { block } = lens;
  const index = layerIndex(block, selection);
  const layers = block.layers.map((_, i) => i);
  const heads = Array.from({ length: block.heads }, (_, head) => head);
  const { combine: how, over } = selection;
  if (how === "each") {
    return selection.heads.map((head) => ({
      label: `H${head}`,
      head,
      matrix: lens.matrix(index, head),
      signed: false,
    }));
  }
  if (over === "layers") {
    return selection.heads.map((head) => ({
      label: `${how} of H${head} over ${layers.length} layers`,
      head,
      matrix: combined(lens, layers, [head], how),
      signed: false,
    }));
  }
  const chosen = over === "heads" && selection.heads.length > 1 ? selection.heads : heads;
  const matrix = combined(lens, over === "both" ? layers : [index], chosen, how);
  const what = over === "both" ? `all ${layers.length} layers` : `L${selection.layer}`;
  return [
    { label: `${how} of ${chosen.length} heads, ${what}`, head: null, matrix, signed: false },
  ];
}

/** Series by series, `second − first`; null where the token columns differ in length. */
export function differences(first: Series[], second: Series[]): Series[] | null {
  const series: Series[] = [];
  for (let i = 0; i < first.length; i++) {
    const matrix = second[i] && difference(first[i].matrix, second[i].matrix);
    if (!matrix) return null;
    series.push({ ...first[i], matrix, signed: true });
  }
  return series;
}

function combined(
  lens: Lens,
  layers: readonly number[],
  heads: readonly number[],
  how: "mean" | "max",
): Matrix {
  function* each(): Generator<Matrix> {
    for (const layer of layers) {
      for (const head of heads) if (lens.block.has(layer, head)) yield lens.matrix(layer, head);
    }
  }
  return combine(each(), how);
}
