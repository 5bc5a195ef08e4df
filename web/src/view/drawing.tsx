// A canvas that shows marks.

import { useLayoutEffect, useRef } from "preact/hooks";
import type { Mark } from "../layout/scene.ts";
import { paint, prepare } from "../paint/canvas.ts";

interface DrawingProps {
  readonly marks: readonly Mark[];
  readonly width: number;
  readonly height: number;
  readonly label?: string;
}

export function Drawing({ marks, width, height, label }: DrawingProps) {
  const ref = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => {
    if (!ref.current || width <= 0 || height <= 0) return;
    paint(prepare(ref.current, width, height), marks);
  }, [marks, width, height]);
  const named = label ? ({ role: "img", "aria-label": label } as const) : { "aria-hidden": true };
  return <canvas ref={ref} {...named} />;
}
