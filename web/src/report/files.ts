// Figures as files: SVG with its colors written out. Nothing leaves the page.

import { cssOf, mix, rgbOfHex, themeOf } from "../paint/theme.ts";
import { canvas, svg } from "./draw.ts";
import { variablesOf } from "./palette.ts";

/** Drawings one below the other, as one. */
export function stacked(drawings: readonly SVGSVGElement[]): SVGSVGElement {
  if (drawings.length === 1) return drawings[0];
  const size = (drawing: SVGSVGElement, name: string) => Number(drawing.getAttribute(name));
  const width = Math.max(...drawings.map((drawing) => size(drawing, "width")));
  const height = drawings.reduce((sum, drawing) => sum + size(drawing, "height"), 0);
  const root = canvas(width, height, "");
  let y = 0;
  for (const drawing of drawings) {
    const copies = Array.from(drawing.childNodes, (child) => child.cloneNode(true));
    root.append(svg("g", { transform: `translate(0 ${y})` }, ...copies));
    y += size(drawing, "height");
  }
  return root;
}

/** The drawing in light colors, as a file of its own. */
export function svgText(drawing: SVGSVGElement, title: string): string {
  const copy = drawing.cloneNode(true) as SVGSVGElement;
  const colors = variablesOf(themeOf("light"));
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  for (const element of [copy, ...copy.querySelectorAll("*")]) {
    for (const name of ["tabindex", "role", "aria-label", "data-spot", "data-head", "class"]) {
      element.removeAttribute(name);
    }
    for (const name of ["fill", "stroke"]) {
      const value = element.getAttribute(name);
      if (value?.includes("var(")) element.setAttribute(name, resolved(value, colors));
    }
  }
  for (const strip of copy.querySelectorAll('[fill="transparent"]')) strip.remove();
  const paper = svg("rect", { width: "100%", height: "100%", fill: "#ffffff" });
  copy.prepend(svg("title", {}, title), paper);
  return new XMLSerializer().serializeToString(copy);
}

/** A color without variables: `var(--x)` looked up, mixtures worked out. */
function resolved(value: string, colors: ReadonlyMap<string, string>): string {
  const plain = value.replace(
    /var\((--[\w-]+)\)/g,
    (_, name: string) => colors.get(name) ?? "#888",
  );
  const mixed = /^color-mix\(in oklab, (#\w{6}) (\d+)%, (#\w{6})\)$/.exec(plain);
  if (!mixed) return plain;
  return cssOf(mix(rgbOfHex(mixed[3]), rgbOfHex(mixed[1]), Number(mixed[2]) / 100));
}
