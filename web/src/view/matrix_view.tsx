// A head as a matrix: wheel or buttons zoom, dragging pans, a click pins a pair.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import {
  bothNames,
  difference,
  type Focus,
  type Matrix,
  NO_FILTER,
} from "../data/filtered_block.ts";
import { formatWeight } from "../data/format.ts";
import { printed, rowOf } from "../data/tokens.ts";
import {
  cellAt,
  type Heat as HeatMap,
  type HeatScale,
  heatOf,
  matrixLayout,
  matrixMarks,
  minimapMarks,
  panned,
  revealed,
  type Window,
  wholeWindow,
  zoomed,
} from "../layout/matrix_layout.ts";
import { labelEms } from "../paint/painter.ts";
import type { Theme } from "../paint/theme.ts";
import type { Side } from "../state/session.ts";
import { Button, consume, Drawing, px } from "./controls.tsx";
import { useExplorer, useSession, useSize } from "./explorer_context.ts";
import { drawnHeads, headColor, matrixScale } from "./selected_head.ts";

/** Each cell in the hue of the head with the largest weight there. */
function overlayHeat(
  heads: ReturnType<typeof drawnHeads>,
  theme: Theme,
  scale: HeatScale,
): HeatMap | null {
  const known = heads.flatMap(({ matrix, color }) => (matrix ? [{ matrix, color }] : []));
  if (known.length < heads.length) return null;
  const strongest = (i: number) =>
    known.reduce((best, head) => (head.matrix.weights[i] > best.matrix.weights[i] ? head : best));
  const parts = known.map((head) => {
    const own = head.matrix.weights.map((weight, i) => (strongest(i) === head ? weight : 0));
    const matrix: Matrix = { ...head.matrix, weights: own };
    return heatOf(matrix, theme, head.color, scale);
  });
  const { panel } = theme.rgb;
  const pixels = parts[0].pixels.slice();
  for (const part of parts.slice(1)) {
    for (let i = 0; i < pixels.length; i += 4) {
      const isEmpty = panel.every((value, c) => part.pixels[i + c] === value);
      if (!isEmpty) pixels.set(part.pixels.subarray(i, i + 4), i);
    }
  }
  return { ...parts[0], pixels };
}

export function MatrixTab() {
  const session = useSession();
  const { ref, width, height } = useSize<HTMLDivElement>();
  const sides = session.shown.value;
  const isMinus = session.selection.value.minus && session.hasDifference;
  const half = sides.length > 1 && !isMinus ? (width - 1) / 2 : width;
  const [a, b] = session.sides.value;
  return (
    <div class="panels" ref={ref}>
      {width > 0 &&
        (isMinus ? (
          <Heat key="minus" side={a} minus={b} width={width} height={height} />
        ) : (
          sides.map((side) => <Heat key={side.trace} side={side} width={half} height={height} />)
        ))}
    </div>
  );
}

const MAP = 130;
/** Maximum height of a cell over its width, where two matrices share the width. */
const MAX_STRETCH = 2.2;
/** Pixels of a cell below which pixels show the largest of several cells. */
const MIN_CELL = 2;

interface HeatProps {
  readonly side: Side;
  readonly minus?: Side;
  readonly width: number;
  readonly height: number;
}

function Heat({ side, minus, width, height }: HeatProps) {
  const explorer = useExplorer();
  const { session } = explorer;
  const theme = session.theme.value;
  const { filter } = session.selection.value;
  const [first, second] = [session.matrix(side), minus && session.matrix(minus)];
  const matrix = useMemo(
    () => (minus ? (first && second ? difference(first, second) : null) : first),
    [minus, first, second],
  );
  const [rows, keys] = useMemo(() => {
    const { rows, columns } = side.filtered;
    const other = minus?.filtered;
    return other
      ? [bothNames(rows, other.rows), bothNames(columns, other.columns)]
      : [rows, columns];
  }, [side.filtered, minus?.filtered]);
  const layout = useMemo(
    () =>
      matrixLayout(
        { width, height },
        rows.length,
        keys.length,
        labelEms([...rows, ...keys]),
        session.sides.value.length > 1 ? MAX_STRETCH : 1,
      ),
    [rows, keys, width, height],
  );
  const [window, setWindow] = useState<Window>(wholeWindow(layout));
  useEffect(() => setWindow(wholeWindow(layout)), [layout]);
  const [cursor, setAt] = useState({ row: 0, column: 0 });
  const drag = useRef<{ x: number; y: number; moved: boolean } | null>(null);
  const { positive, negative } = theme.rgb;
  const [color, below] = minus ? [positive, negative] : [headColor(session, side)];
  const full = minus ? 1 : (matrixScale(session)?.full ?? 1);
  const pool = window.cell < MIN_CELL ? Math.ceil(MIN_CELL / window.cell) : 1;
  // The filter's usual limit is for lines: a matrix shows every weight unless it is raised.
  const above = filter.above > NO_FILTER.above ? filter.above : 0;
  const overlaid = minus ? null : session.overlaid;
  const heads = overlaid ? drawnHeads(session, side) : [];
  const hues = heads.map(({ color }) => color.join()).join("/");
  const heat = useMemo(() => {
    if (!matrix) return null;
    if (heads.length > 1) return overlayHeat(heads, theme, { full, above, pool });
    return heatOf(matrix, theme, color, { full, above, pool }, below);
  }, [matrix, theme, color.join(), above, full, pool, hues, ...heads.map((head) => head.matrix)]);
  const focus = session.focus(side);
  const { word, key } = session.selection.value;
  const pinned = {
    row: rowOf(rows, session.place(side, word, "query")),
    column: rowOf(keys, session.place(side, key, "key")),
  };
  const marks = useMemo(
    () => (heat ? matrixMarks({ heat, rows, keys, focus, pinned }, window, layout, theme) : []),
    [heat, window, layout, theme, focus.row, focus.column, pinned.row, pinned.column],
  );
  const isWhole = window.cell <= layout.fit * 1.001;
  const look = (event: PointerEvent, cell: Focus | null) => {
    if (!cell || !matrix) {
      explorer.clearHover();
      return;
    }
    const [from, to] = [rows[cell.row], keys[cell.column]];
    session.point({ query: from.positions[0], key: to.positions[0] });
    const reading = minus ? null : session.row(side, cell.row);
    const index = cell.row * matrix.columns + cell.column;
    const weight = reading?.weights[cell.column] ?? matrix.weights[index];
    explorer.showTip(event, `${printed(from.label)} → ${printed(to.label)}`, [
      [minus ? "B − A" : "weight", formatWeight(weight, reading?.precision ?? "fine")],
      ["query, key", `${from.positions[0]}, ${to.positions[0]}`],
    ]);
  };
  const pin = (cell: Focus | null) => {
    if (!cell) return;
    const [query, read] = [rows[cell.row].positions[0], keys[cell.column].positions[0]];
    const isPinned = word === query && key === read;
    session.update(isPinned ? { word: null, key: null } : { word: query, key: read });
  };
  const place = (event: PointerEvent | WheelEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const keyDown = (event: KeyboardEvent) => {
    const steps: Record<string, [number, number]> = {
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
    };
    const step = steps[event.key];
    if (step) {
      const next = {
        row: Math.min(rows.length - 1, Math.max(0, cursor.row + step[0])),
        column: Math.min(keys.length - 1, Math.max(0, cursor.column + step[1])),
      };
      setAt(next);
      setWindow(revealed(window, layout, next.row, next.column));
      session.point({
        query: rows[next.row].positions[0],
        key: keys[next.column].positions[0],
      });
    } else if (event.key === "Enter") pin(cursor);
    else if (event.key === "+" || event.key === "=") setWindow(zoomed(window, layout, 1.5));
    else if (event.key === "-") setWindow(zoomed(window, layout, 1 / 1.5));
    else if (event.key === "0") setWindow(wholeWindow(layout));
    else return;
    consume(event);
  };
  const aspect = layout.rows / Math.max(1, layout.columns);
  const map =
    aspect > 1 ? { width: MAP / aspect, height: MAP } : { width: MAP, height: MAP * aspect };
  const selected = focus.row >= 0 && focus.column >= 0 && matrix
    ? `, ${printed(rows[focus.row].label)} reads ${printed(keys[focus.column].label)} ` +
      formatWeight(matrix.weights[focus.row * matrix.columns + focus.column], "fine")
    : ""; // biome-ignore format: one choice
  return (
    <div class={`heat ${matrix ? "" : "waiting"}`} style={px({ width: width })}>
      <div
        class={`map ${isWhole ? "" : "movable"}`}
        role="application"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: arrows move in it, Enter pins
        tabIndex={0}
        aria-label={`Matrix of ${rows.length} by ${keys.length}${selected}`}
        onKeyDown={keyDown}
        onWheel={(event) => {
          const { x, y } = place(event);
          setWindow(zoomed(window, layout, event.deltaY < 0 ? 1.2 : 1 / 1.2, x, y));
          event.preventDefault();
        }}
        onPointerDown={(event) => {
          drag.current = { ...place(event), moved: false };
          event.currentTarget.setPointerCapture(event.pointerId);
        }}
        onPointerMove={(event) => {
          const now = place(event);
          const held = drag.current;
          if (!held) {
            look(event, cellAt(window, layout, now.x, now.y));
            return;
          }
          if (Math.abs(now.x - held.x) + Math.abs(now.y - held.y) > 3) held.moved = true;
          if (!held.moved) return;
          explorer.hideTip();
          setWindow(panned(window, layout, now.x - held.x, now.y - held.y));
          drag.current = { ...now, moved: true };
        }}
        onPointerUp={(event) => {
          const { x, y } = place(event);
          if (!drag.current?.moved) pin(cellAt(window, layout, x, y));
          drag.current = null;
        }}
        onPointerLeave={explorer.clearHover}
      >
        <Drawing marks={marks} width={width} height={height} />
      </div>
      <div class="zoom">
        {side.letter && <b class="letter">{minus ? "B − A" : side.letter}</b>}
        <Button onClick={() => setWindow(zoomed(window, layout, 1.5))} aria-label="Magnify">
          +
        </Button>
        <Button onClick={() => setWindow(zoomed(window, layout, 1 / 1.5))} aria-label="Show more">
          −
        </Button>
        <Button disabled={isWhole} onClick={() => setWindow(wholeWindow(layout))}>
          fit
        </Button>
      </div>
      {!isWhole && heat && (
        <div class="minimap" aria-hidden="true">
          <Drawing marks={minimapMarks(heat, window, layout, map, theme)} {...map} />
        </div>
      )}
    </div>
  );
}
