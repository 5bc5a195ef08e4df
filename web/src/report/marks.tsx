// SVG marks of figures, and spots: marks with numbers and a keyboard.

import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import type { HeadId } from "../../generated/report.ts";
import { textWidth } from "../paint/painter.ts";
import { dotStyle } from "../paint/roles.ts";
import { SANS } from "../paint/theme.ts";
import type { Tip } from "../view/controls.tsx";
import { type ReportContext, useReport } from "./report_context.ts";

/** Round coordinates to hundredths of a pixel. */
export function round<T extends Record<string, number>>(values: T): T {
  const pairs = Object.entries(values).map(([name, value]) => [name, hundredths(value)]);
  return Object.fromEntries(pairs) as T;
}

export function hundredths(value: number): number {
  return Math.round(value * 100) / 100;
}

export function shift(x: number, y: number): string {
  return `translate(${hundredths(x)} ${hundredths(y)})`;
}

interface LabelProps {
  readonly x: number;
  readonly y: number;
  readonly text: string;
  readonly anchor?: "start" | "middle" | "end";
  readonly size?: number;
  readonly fill?: string;
  readonly isBold?: boolean;
  /** Whether `y` is the middle of the text, not its baseline. */
  readonly isCentral?: boolean;
  readonly turn?: string;
}

export function Label({ x, y, text, anchor, size, fill = "soft", ...style }: LabelProps) {
  return (
    <text
      {...round({ x, y })}
      fill={fill.startsWith("var") ? fill : `var(--${fill})`}
      text-anchor={anchor}
      font-size={size}
      font-weight={style.isBold ? 600 : undefined}
      dominant-baseline={style.isCentral ? "central" : undefined}
      transform={style.turn}
    >
      {text}
    </text>
  );
}

/** Label of a tick, a row or a column. */
export function Tick({ anchor = "middle", ...place }: Omit<LabelProps, "size">) {
  return <Label anchor={anchor} size={10} {...place} />;
}

export function Heading({ size = 12, ...place }: LabelProps) {
  return <Label {...place} size={size} fill="ink" isBold />;
}

interface LineProps {
  readonly from: readonly [x: number, y: number];
  readonly to: readonly [x: number, y: number];
  readonly stroke: string;
  readonly width?: number;
  readonly opacity?: number;
  readonly dashes?: string;
}

export function Line({ from, to, stroke, width, opacity, dashes }: LineProps) {
  return (
    <line
      {...round({ x1: from[0], y1: from[1], x2: to[0], y2: to[1] })}
      stroke={stroke}
      stroke-width={width}
      stroke-opacity={opacity}
      stroke-dasharray={dashes}
    />
  );
}

/** Mark that shows numbers and may open the card of a head. */
interface Spot {
  readonly heading: string;
  readonly rows: Tip["rows"];
  readonly panel: number;
  readonly x: number;
  readonly y: number;
  readonly head?: HeadId;
}

/** Spots of one figure, collected while it is drawn. */
export class Spots {
  readonly list: Spot[] = [];
  private readonly panels = new Set<number>();
  private readonly chosen: string;

  constructor({ chosen }: ReportContext) {
    this.chosen = chosen.value?.join(".") ?? "";
  }

  /** Register a spot and return the attributes of its mark; `kind` is its CSS class. */
  add(kind: string, spot: Spot) {
    const isFirst = !this.panels.has(spot.panel);
    const head = spot.head?.join(".");
    const numbers = spot.rows.map(([label, value]) => `${label} ${value}`.trim()).join(", ");
    this.panels.add(spot.panel);
    return {
      class: head && head === this.chosen ? `${kind} chosen` : kind,
      "data-spot": this.list.push(spot) - 1,
      "data-head": head,
      tabindex: isFirst ? 0 : -1,
      role: head ? ("button" as const) : ("img" as const),
      "aria-label": `${spot.heading}: ${numbers}`,
    };
  }

  /** Nearest spot of the same panel in a direction; -1 without one. */
  next(index: number, [dx, dy]: readonly [number, number]): number {
    const from = this.list[index];
    let [best, cost] = [-1, Number.POSITIVE_INFINITY];
    this.list.forEach((spot, i) => {
      const [x, y] = [spot.x - from.x, spot.y - from.y];
      const along = x * dx + y * dy;
      if (spot.panel !== from.panel || i === index || along <= 0.01) return;
      const price = along + 3 * Math.abs(x * dy + y * dx);
      if (price < cost) [best, cost] = [i, price];
    });
    return best;
  }
}

const STEPS: Record<string, readonly [number, number]> = {
  ArrowRight: [1, 0],
  ArrowLeft: [-1, 0],
  ArrowDown: [0, 1],
  ArrowUp: [0, -1],
};

interface CanvasProps {
  readonly width: number;
  readonly height: number;
  readonly label: string;
  readonly spots?: Spots;
  readonly children: ComponentChildren;
}

/** SVG drawing: hover and focus show a spot's numbers, arrows move, click and Enter open a card. */
export function Canvas({ width, height, label, spots, children }: CanvasProps) {
  const context = useReport();
  const ref = useRef<SVGSVGElement>(null);
  const indexOf = (event: Event) => {
    const index = (event.target as Element).closest("[data-spot]")?.getAttribute("data-spot");
    return index ? Number(index) : -1;
  };
  const show = (index: number, place: { clientX: number; clientY: number }) => {
    const spot = spots!.list[index];
    if (spot) context.showTip(place, spot.heading, spot.rows);
  };
  const choose = (index: number) => {
    const head = spots!.list[index]?.head;
    if (head) context.openCard(head);
  };
  const keyDown = (event: KeyboardEvent) => {
    const index = indexOf(event);
    const isChoice = event.key === "Enter" || event.key === " ";
    if (index < 0 || !(isChoice || event.key in STEPS)) return;
    event.preventDefault();
    if (isChoice) choose(index);
    else {
      // The drawing may be split over several SVG elements, which share their spots.
      const box = ref.current!.closest(".drawing") ?? ref.current!;
      const next = spots!.next(index, STEPS[event.key]);
      const element = box.querySelector<SVGElement>(`[data-spot="${next}"]`);
      if (!element) return;
      (event.target as Element).setAttribute("tabindex", "-1");
      element.setAttribute("tabindex", "0");
      element.focus();
    }
  };
  const listeners = spots && {
    onPointerMove(event: PointerEvent) {
      const index = indexOf(event);
      if (index < 0) context.hideTip();
      else show(index, event);
    },
    onPointerLeave: context.hideTip,
    onFocusIn(event: FocusEvent) {
      const element = event.target as Element;
      if (!element.matches(":focus-visible")) return;
      const box = element.getBoundingClientRect();
      show(indexOf(event), { clientX: box.right, clientY: box.top });
    },
    onFocusOut: context.hideTip,
    onClick: (event: MouseEvent) => choose(indexOf(event)),
    onKeyDown: keyDown,
  };
  return (
    <svg
      ref={ref}
      {...round({ width, height })}
      viewBox={`0 0 ${hundredths(width)} ${hundredths(height)}`}
      role={spots ? "group" : "img"}
      aria-label={label}
      font-family={SANS}
      font-size={11}
      {...listeners}
    >
      {children}
    </svg>
  );
}

/** Place boxes from left to right, in as many lines as the width needs. */
export function flow(
  sizes: readonly { width: number; height: number }[],
  width: number,
  gap: number,
): { places: { x: number; y: number }[]; height: number } {
  let [x, y, tallest] = [0, 0, 0];
  const places = sizes.map((size) => {
    if (x > 0 && x + size.width > width + 0.5) [x, y, tallest] = [0, y + tallest + gap, 0];
    const place = { x, y };
    x += size.width + gap;
    tallest = Math.max(tallest, size.height);
    return place;
  });
  return { places, height: y + tallest };
}

/** Number of equal panels in a line, each at least `least` wide, and their width. */
export function columnsFor(count: number, width: number, least: number, gap: number) {
  const across = Math.max(1, Math.min(count, Math.floor(width / least)));
  return { across, size: (width - (across - 1) * gap) / across };
}

/** Place names in lines, each with `room` for its symbol; `height` is the top of the last line. */
export function flowNames(names: readonly string[], room: number, width: number, step: number) {
  let [x, y] = [0, 0];
  const places = names.map((name) => {
    const needed = textWidth(name, 11) + room;
    if (x + needed > width) [x, y] = [0, y + step];
    const place = { name, x, y };
    x += needed;
    return place;
  });
  return { places, height: y };
}

/** Legend of roles and relations: a dot and a name each. */
export function roleLegend(names: readonly string[], width: number) {
  const { places, height } = flowNames(names, 30, width, 18);
  const element = places.map(({ name, x, y }) => (
    <g key={name}>
      <circle {...round({ cx: x + 5, cy: y + 6 })} r={4.5} {...dotStyle(name, names)} />
      <Label x={x + 14} y={y + 10} text={name} fill="ink" />
    </g>
  ));
  return { element, height: height + 10 };
}

/** Width of a color scale in pixels, and its number of steps. */
export const SCALE = 160;
const PARTS = 40;

interface ColorScaleProps {
  readonly x: number;
  readonly y: number;
  readonly ends: readonly string[];
  readonly title?: string;
  fill(share: number): string;
}

/** Scale of colors from 0 to 1, with its ends. */
export function ColorScale({ x, y, ends, title, fill }: ColorScaleProps) {
  return (
    <g transform={shift(x, y)}>
      {Array.from({ length: PARTS }, (_, i) => {
        const box = { x: (i * SCALE) / PARTS, y: 0, width: SCALE / PARTS + 0.3, height: 9 };
        return <rect key={box.x} {...round(box)} fill={fill((i + 0.5) / PARTS)} />;
      })}
      <Tick x={0} y={22} text={ends[0]} anchor="start" />
      <Tick x={SCALE} y={22} text={ends[1]} anchor="end" />
      {title && <Label x={SCALE + 10} y={9} text={title} />}
    </g>
  );
}
