// Figures as files: SVG with its colors written out, data as CSV. Nothing leaves the page.

import { themeOf } from "../paint/theme.ts";
import { download } from "../view/saving.ts";
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
  copy.removeAttribute("role");
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
  const name = document.createElementNS("http://www.w3.org/2000/svg", "title");
  name.textContent = title;
  const paper = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [key, value] of [
    ["width", "100%"],
    ["height", "100%"],
    ["fill", "#ffffff"],
  ]) {
    paper.setAttribute(key, value);
  }
  copy.prepend(name, paper);
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
  const [from, to] = [mixed[3], mixed[1]].map((hex) => Number.parseInt(hex.slice(1), 16));
  const share = Number(mixed[2]) / 100;
  const part = (shift: number) => {
    const [a, b] = [(from >> shift) & 255, (to >> shift) & 255];
    return Math.round(a + (b - a) * share);
  };
  return `rgb(${part(16)},${part(8)},${part(0)})`;
}

export function csvText(rows: readonly (readonly (string | number | null)[])[]): string {
  return `${rows.map((row) => row.map(field).join(",")).join("\r\n")}\r\n`;
}

function field(value: string | number | null): string {
  if (value === null) return "";
  const plain = String(value);
  return /[",\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
}

export function saveText(content: string, name: string, type: string): void {
  download(new Blob([content], { type }), name);
}
