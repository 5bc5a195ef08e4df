// SVG elements, and the spots in them that can be pointed at, focused and chosen.

import { rulerFor } from "../paint/painter.ts";
import { SANS } from "../paint/theme.ts";
import type { Row } from "../view/download.ts";
import type { HeadId, Report } from "./data.ts";
import type { Tooltip, TooltipRow } from "./tooltip.ts";

type Attributes = Record<string, string | number>;

/** What every figure needs of the page. */
export interface Scope {
  readonly report: Report;
  readonly tooltip: Tooltip;
  openCard(id: HeadId): void;
  /** The head whose card is open, as `0.7.9`; empty without one. */
  chosen(): string;
}

/** A figure that can be drawn at a width and written as a table. */
export interface Drawing {
  /** Controls above the figure. */
  readonly controls?: HTMLElement;
  render(width: number): SVGSVGElement | HTMLElement;
  csv(): Row[];
}

export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, typeof value === "number" ? String(round(value)) : value);
  }
  element.append(...children);
  return element;
}

export function round(value: number): number {
  return Math.round(value * 100) / 100;
}

export function canvas(width: number, height: number, label: string): SVGSVGElement {
  return svg("svg", {
    width,
    height,
    viewBox: `0 0 ${round(width)} ${round(height)}`,
    role: "group",
    "aria-label": label,
    "font-family": SANS,
    "font-size": 11,
  });
}

export function text(
  x: number,
  y: number,
  content: string,
  attributes: Attributes = {},
): SVGTextElement {
  return svg("text", { x, y, fill: "var(--soft)", ...attributes }, content);
}

/** A small label: of a tick, of a row or a column. */
export function tick(
  x: number,
  y: number,
  content: string,
  anchor: "start" | "middle" | "end" = "middle",
): SVGTextElement {
  return text(x, y, content, { "text-anchor": anchor, "font-size": 10 });
}

export function line(
  from: readonly [x: number, y: number],
  to: readonly [x: number, y: number],
  attributes: Attributes,
): SVGLineElement {
  return svg("line", { x1: from[0], y1: from[1], x2: to[0], y2: to[1], ...attributes });
}

/** The name of what stands below it. */
export function heading(x: number, y: number, content: string, size = 12): SVGTextElement {
  return text(x, y, content, { fill: "var(--ink)", "font-weight": 600, "font-size": size });
}

export function textWidth(content: string, size: number, bold = false): number {
  return rulerFor(`${bold ? "600 " : ""}${size}px ${SANS}`).measureText(content).width;
}

/** `content`, or as much of it as fits. */
export function fitted(content: string, size: number, width: number): string {
  if (textWidth(content, size) <= width) return content;
  let kept = content;
  while (kept.length > 1 && textWidth(`${kept}…`, size) > width) kept = kept.slice(0, -1);
  return `${kept}…`;
}

/** Shade of a share of the scale, by name: the theme says what it looks like. */
export function shade(share: number): string {
  return `var(--h${Math.round(Math.min(1, Math.max(0, share)) * (SHADES - 1))})`;
}

export const SHADES = 64;

export function color(index: number): string {
  return `var(--c${index % COLORS})`;
}

export const COLORS = 16;

/** Something in a drawing that has numbers behind it. */
export interface Spot {
  readonly heading: string;
  readonly rows: readonly TooltipRow[];
  readonly panel: number;
  readonly x: number;
  readonly y: number;
  readonly head?: HeadId;
}

/** The spots of one drawing: hover and focus show numbers, click and Enter open the card. */
export class Spots {
  private readonly spots: Spot[] = [];
  private readonly elements: SVGElement[] = [];
  private readonly panels = new Set<number>();

  constructor(private readonly scope: Scope) {}

  add<E extends SVGElement>(element: E, spot: Spot): E {
    const isFirst = !this.panels.has(spot.panel);
    this.panels.add(spot.panel);
    const said = spot.rows.map((row) => `${row.label} ${row.value}`.trim()).join(", ");
    element.setAttribute("data-spot", String(this.spots.length));
    element.setAttribute("tabindex", isFirst ? "0" : "-1");
    element.setAttribute("role", spot.head ? "button" : "img");
    element.setAttribute("aria-label", `${spot.heading}: ${said}`);
    if (spot.head) {
      const head = spot.head.join(".");
      element.setAttribute("data-head", head);
      if (head === this.scope.chosen()) element.classList.add("chosen");
    }
    this.spots.push(spot);
    this.elements.push(element);
    return element;
  }

  listen(root: SVGElement): void {
    const of = (event: Event) => {
      const element = (event.target as Element).closest?.("[data-spot]");
      return element ? Number(element.getAttribute("data-spot")) : -1;
    };
    root.addEventListener("pointermove", (event) => {
      const index = of(event);
      if (index < 0) this.scope.tooltip.hide();
      else this.show(index, event);
    });
    root.addEventListener("pointerleave", () => this.scope.tooltip.hide());
    root.addEventListener("focusin", (event) => {
      const index = of(event);
      if (index < 0 || !this.elements[index].matches(":focus-visible")) return;
      const box = this.elements[index].getBoundingClientRect();
      this.show(index, { clientX: box.right, clientY: box.top });
    });
    root.addEventListener("focusout", () => this.scope.tooltip.hide());
    root.addEventListener("click", (event) => this.choose(of(event)));
    root.addEventListener("keydown", (event) => {
      const index = of(event);
      if (index < 0) return;
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        this.choose(index);
      } else if (event.key in STEPS) {
        event.preventDefault();
        this.move(index, STEPS[event.key]);
      }
    });
  }

  private show(index: number, at: { clientX: number; clientY: number }): void {
    const { heading, rows } = this.spots[index];
    this.scope.tooltip.show(at, heading, rows);
  }

  private choose(index: number): void {
    const head = this.spots[index]?.head;
    if (head) this.scope.openCard(head);
  }

  /** Focus the nearest spot of the same panel in a direction. */
  private move(index: number, [dx, dy]: readonly [number, number]): void {
    const from = this.spots[index];
    let best = -1;
    let cost = Number.POSITIVE_INFINITY;
    this.spots.forEach((spot, i) => {
      const [x, y] = [spot.x - from.x, spot.y - from.y];
      const along = x * dx + y * dy;
      if (spot.panel !== from.panel || i === index || along <= 0.01) return;
      const price = along + 3 * Math.abs(x * dy + y * dx);
      if (price < cost) [best, cost] = [i, price];
    });
    if (best < 0) return;
    this.elements[index].setAttribute("tabindex", "-1");
    this.elements[best].setAttribute("tabindex", "0");
    this.elements[best].focus();
  }
}

const STEPS: Record<string, readonly [number, number]> = {
  ArrowRight: [1, 0],
  ArrowLeft: [-1, 0],
  ArrowDown: [0, 1],
  ArrowUp: [0, -1],
};

/** Left to right, and on to the next line where the width is used up. */
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

/** Names one after the other, each with `room` for its sign, in as many lines as the width needs;
 *  returns how far down the last line is. */
export function flowNames(
  names: readonly string[],
  { room, width, step }: { room: number; width: number; step: number },
  draw: (name: string, x: number, y: number, i: number) => void,
): number {
  let [x, y] = [0, 0];
  names.forEach((name, i) => {
    const own = textWidth(name, 11) + room;
    if (x + own > width) [x, y] = [0, y + step];
    draw(name, x, y, i);
    x += own;
  });
  return y;
}

/** Width of a scale of colors, and in how many steps it is drawn. */
export const SCALE = 160;
const PARTS = 40;

/** A scale of colors from 0 to 1, with its ends. */
export function colorScale(
  x: number,
  y: number,
  fill: (share: number) => string,
  ends: readonly [low: string, high: string],
): SVGGElement {
  const group = svg("g", { transform: `translate(${x} ${y})` });
  for (let i = 0; i < PARTS; i++) {
    const box = { x: (i * SCALE) / PARTS, y: 0, width: SCALE / PARTS + 0.3, height: 9 };
    group.append(svg("rect", { ...box, fill: fill((i + 0.5) / PARTS) }));
  }
  group.append(tick(0, 22, ends[0], "start"), tick(SCALE, 22, ends[1], "end"));
  return group;
}
