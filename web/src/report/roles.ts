// What heads do, as colors: the commonest roles are filled, rarer ones are rings.

import { COLORS, color, shade, svg, text, textWidth } from "./draw.ts";

const OTHER = "other";

/** Roles in order of how many heads have them; heads without one last. */
export function rolesByCount(names: readonly string[]): string[] {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  const sorted = [...counts.keys()].sort((a, b) => counts.get(b)! - counts.get(a)!);
  return [...sorted.filter((name) => name !== OTHER), ...sorted.filter((name) => name === OTHER)];
}

/** More roles than colors: the rarer ones are rings. */
export function lookOf(name: string, roles: readonly string[]): Record<string, string | number> {
  const at = roles.indexOf(name);
  if (name === OTHER) return { class: "dot", fill: "var(--strong)" };
  if (at < COLORS) return { class: "dot", fill: color(at) };
  return { class: "ring", fill: "var(--paper)", stroke: color(at), "stroke-width": 2 };
}

/** Later layers are stronger; the first stay visible. */
export function layerShade(layer: number, layers: readonly number[]): string {
  const last = Math.max(1, layers.length - 1);
  return shade(0.28 + (0.66 * layers.indexOf(layer)) / last);
}

/** One dot and name for each role, in as many lines as the width needs. */
export function drawLegend(
  roles: readonly string[],
  width: number,
): { element: SVGGElement; height: number } {
  const element = svg("g");
  let [x, y] = [0, 10];
  for (const name of roles) {
    const room = textWidth(name, 11) + 30;
    if (x + room > width) [x, y] = [0, y + 18];
    element.append(
      svg("circle", { cx: x + 5, cy: y - 4, r: 4.5, ...lookOf(name, roles) }),
      text(x + 14, y, name, { fill: "var(--ink)" }),
    );
    x += room;
  }
  return { element, height: y };
}
