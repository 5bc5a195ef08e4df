// What heads do, as colors: the commonest roles are filled, rarer ones are rings.

import { COLORS, color, flowNames, shade, svg, text } from "./draw.ts";

const OTHER = "other";

/** Roles in order of how many heads have them; heads without one last. */
export function rolesByCount(names: readonly string[]): string[] {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  const size = (name: string) => (name === OTHER ? 0 : counts.get(name)!);
  return [...counts.keys()].sort((a, b) => size(b) - size(a));
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
  const last = flowNames(roles, { room: 30, width, step: 18 }, (name, x, y) => {
    element.append(
      svg("circle", { cx: x + 5, cy: y + 6, r: 4.5, ...lookOf(name, roles) }),
      text(x + 14, y + 10, name, { fill: "var(--ink)" }),
    );
  });
  return { element, height: last + 10 };
}
