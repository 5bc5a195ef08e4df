// Frame of a figure: number, title, controls, caption, equations, paper, downloads.

import type { ComponentChildren, VNode } from "preact";
import { useRef } from "preact/hooks";
import type { Figure } from "../../generated/report.ts";
import { escapeXml } from "../paint/painter.ts";
import { colorVariables } from "../paint/roles.ts";
import { cssOf, mix, rgbOfHex, SANS, themeOf } from "../paint/theme.ts";
import { csvText, download, type Row } from "../view/download.ts";
import { useSize } from "../view/explorer_context.ts";
import { useReport } from "./report_context.ts";
import { Equation, Quiet, Sentence } from "./sentences.tsx";

/** Widest and narrowest drawing in pixels. */
const MAX_WIDTH = 880;
const MIN_WIDTH = 240;

interface FigureFrameProps {
  readonly figure: Figure;
  readonly controls?: ComponentChildren;
  /** Text and equation below the caption; those of the figure by default. */
  readonly notes?: readonly { readonly text: string; readonly equation: string | undefined }[];
  readonly paper?: string;
  csv(): Row[];
  draw(width: number): VNode;
}

export function FigureFrame({ figure, controls, csv, draw, ...about }: FigureFrameProps) {
  const { report, numbers } = useReport();
  const { ref, width } = useSize<HTMLDivElement>(false);
  const body = useRef<HTMLDivElement>(null);
  const title = `${numbers.get(figure.id) ?? ""}. ${figure.title}`;
  const notes = about.notes ?? [{ text: "", equation: figure.equation ?? undefined }];
  const paper = about.paper ?? figure.paper;
  const most = figure.kind === "heads" ? Number.POSITIVE_INFINITY : MAX_WIDTH;
  const save = (content: string, suffix: string, type: string) =>
    download(new Blob([content], { type }), `${figure.id}.${suffix}`);
  const saveSvg = () => {
    const drawings = [...body.current!.querySelectorAll("svg")];
    save(svgText(drawings, `${title} · ${report.title}`), "svg", "image/svg+xml");
  };
  return (
    <figure
      id={`figure-${figure.id}`}
      aria-label={title}
      class={figure.kind === "heads" ? undefined : "beside"}
    >
      <div class="left" ref={ref}>
        {controls && <div class="controls">{controls}</div>}
        <div class="drawing" ref={body}>
          {width > 0 && draw(Math.max(MIN_WIDTH, Math.min(width, most)))}
        </div>
      </div>
      <figcaption>
        <strong>{title}. </strong>
        <Sentence parts={figure.caption} />
      </figcaption>
      <div class="notes">
        {notes.map(({ text, equation = "" }) =>
          text || report.equations[equation] ? (
            <div class="equation" key={text}>
              {text && <span>{text}</span>}
              {report.equations[equation] && <Equation tree={report.equations[equation]} />}
            </div>
          ) : null,
        )}
        {paper && <p class="paper">{paper}</p>}
      </div>
      <div class="downloads">
        {figure.kind !== "table" && (
          <Quiet text="SVG" title="Save this figure as SVG" click={saveSvg} />
        )}
        <Quiet
          text="CSV"
          title="Save the data of this figure as CSV"
          click={() => save(csvText(csv()), "csv", "text/csv")}
        />
      </div>
    </figure>
  );
}

const ON_SCREEN = ["tabindex", "role", "aria-label", "data-spot", "data-head", "class"];

/** Write drawings one below the other as one SVG file, in light colors. */
function svgText(drawings: readonly SVGSVGElement[], title: string): string {
  const colors = colorVariables(themeOf("light"));
  let [width, height] = [0, 0];
  const parts = drawings.map((drawing) => {
    const copy = drawing.cloneNode(true) as SVGSVGElement;
    for (const element of [copy, ...copy.querySelectorAll("*")]) {
      for (const name of ON_SCREEN) element.removeAttribute(name);
      for (const name of ["fill", "stroke"]) {
        const value = element.getAttribute(name);
        if (value?.includes("var(")) element.setAttribute(name, plainColor(value, colors));
      }
    }
    for (const strip of copy.querySelectorAll('[fill="transparent"]')) strip.remove();
    copy.setAttribute("y", String(height));
    width = Math.max(width, Number(drawing.getAttribute("width")));
    height += Number(drawing.getAttribute("height"));
    return new XMLSerializer().serializeToString(copy);
  });
  const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
  const font = `font-family="${escapeXml(SANS)}" font-size="11"`;
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} ${font}>
<title>${escapeXml(title)}</title>
<rect width="100%" height="100%" fill="#ffffff"/>
${parts.join("\n")}
</svg>
`;
}

function plainColor(value: string, colors: ReadonlyMap<string, string>): string {
  const plain = value.replace(
    /var\((--[\w-]+)\)/g,
    (_, name: string) => colors.get(name) ?? "#888",
  );
  const mixed = /^color-mix\(in oklab, (#\w{6}) (\d+)%, (#\w{6})\)$/.exec(plain);
  if (!mixed) return plain;
  return cssOf(mix(rgbOfHex(mixed[3]), rgbOfHex(mixed[1]), Number(mixed[2]) / 100));
}
