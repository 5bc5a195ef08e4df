// How the panes share the explorer: beside one another where there is room, else stacked.

import type { Selection } from "../state/selection.ts";

export interface PanesInput {
  readonly width: number;
  readonly height: number;
  readonly view: Selection["view"];
  readonly layers: number;
  readonly heads: number;
  /** Whether the model view is sorted, and so not a table. */
  readonly sorted: boolean;
  /** Whether a query is pinned and has vectors: the neuron pane has something to show. */
  readonly neurons: boolean;
}

export interface Panes {
  readonly model: boolean;
  readonly head: boolean;
  readonly neurons: boolean;
  readonly columns: string;
  readonly rows: string;
  readonly areas: string;
}

const NARROW = 640;
const ALONE = { columns: "minmax(0, 1fr)", rows: "minmax(0, 1fr)" };

export function panesOf(input: PanesInput): Panes {
  const { view, width, height } = input;
  if (view !== "all") {
    return {
      model: view === "model",
      head: view === "head",
      neurons: view === "neurons",
      ...ALONE,
      areas: `"${view}"`,
    };
  }
  const drawer = input.neurons ? Math.round(Math.min(420, Math.max(210, height * 0.42))) : 0;
  const shown = { model: true, head: true, neurons: input.neurons };
  if (width < NARROW) {
    const rows = `minmax(0, 2fr) minmax(0, 3fr)${drawer ? ` ${drawer}px` : ""}`;
    return {
      ...shown,
      columns: ALONE.columns,
      rows,
      areas: `"model" "head"${drawer ? ' "neurons"' : ""}`,
    };
  }
  const model = modelWidth(input, height - drawer);
  return {
    ...shown,
    columns: `${model}px minmax(0, 1fr)`,
    rows: `minmax(0, 1fr)${drawer ? ` ${drawer}px` : ""}`,
    areas: `"model head"${drawer ? ' "neurons neurons"' : ""}`,
  };
}

/** As wide as square thumbnails of all layers need, within reason. */
function modelWidth({ width, layers, heads, sorted }: PanesInput, height: number): number {
  const fitting = Math.floor((height - 96) / layers);
  const pitch = fitting < 25 ? 36 : Math.min(84, fitting);
  const wanted = sorted ? width * 0.42 : 50 + heads * pitch;
  return Math.round(Math.max(320, Math.min(wanted, width * 0.43)));
}
