// A canvas that shows marks.

import { useLayoutEffect, useRef } from "preact/hooks";
import type { Mark } from "../layout/scene.ts";
import { paint, prepare } from "../paint/canvas.ts";

export interface DrawingProps {
  readonly marks: readonly Mark[];
  readonly width: number;
  readonly height: number;
  readonly class?: string;
  readonly label?: string;
}

export function Drawing({ marks, width, height, label, ...rest }: DrawingProps) {
  const ref = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => {
    if (!ref.current || width <= 0 || height <= 0) return;
    paint(prepare(ref.current, width, height), { marks }, { top: -1, bottom: height + 1 });
  }, [marks, width, height]);
  const named = label ? ({ role: "img", "aria-label": label } as const) : { "aria-hidden": true };
  return <canvas ref={ref} class={rest.class ?? ""} {...named} />;
}
