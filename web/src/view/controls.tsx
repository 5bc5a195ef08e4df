// Small parts that several views share.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Entry } from "../data/tokens.ts";
import type { Mark } from "../layout/scene.ts";
import { paint, prepare } from "../paint/painter.ts";
import { inkOn, type RoleLook, roleColor } from "../paint/roles.ts";
import { useSession } from "./explorer_context.ts";

/** The names of classes that hold, in one attribute. */
export function classes(...names: readonly (string | false | undefined)[]): string {
  return names.filter(Boolean).join(" ");
}

interface SwatchProps {
  readonly look: RoleLook;
  /** Whether the sign is kept from screen readers. */
  readonly isHidden?: boolean;
}

/** The sign of a role on its color; hollow for heads that no rule names. */
export function Swatch({ look, isHidden }: SwatchProps) {
  const { scheme } = useSession().theme.value;
  const isHollow = look.id === "unnamed";
  const style = isHollow ? {} : { background: look[scheme], color: inkOn(roleColor(look, scheme)) };
  return (
    <span class={classes("sw", isHollow && "hollow")} style={style} aria-hidden={isHidden}>
      {look.sign}
    </span>
  );
}

/** A or B after a word that both texts have. */
export function Where({ entries, index }: { entries: readonly Entry[]; index: number }) {
  const { label, segment, special } = entries[index];
  const isTwice = entries.some((one) => one.segment !== segment && one.label === label);
  return isTwice && !special ? <sup class="letter">{"AB"[segment]}</sup> : null;
}

/** A command to type, copied by a click; lines do not break between an option and its value. */
export function Command({ text }: { text: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = () => void navigator.clipboard?.writeText(text).then(() => setCopied(true));
  return (
    <button type="button" class="command" title="Copy this" onClick={copy}>
      <code>
        {text.split(/(--\S+ \S+)/).map((part, i) => (
          <span key={`${i}${part}`} class={i % 2 ? "option" : undefined}>
            {part}
          </span>
        ))}
      </code>
      <span class="mut" aria-live="polite">
        {isCopied ? "copied" : "copy"}
      </span>
    </button>
  );
}

interface SegmentsProps<T> {
  readonly label: string;
  readonly value: T;
  readonly options: readonly (readonly [value: T, text: string, title?: string])[];
  choose(value: T): void;
}

/** A row of buttons of which one is pressed. */
export function Segments<T>({ label, value, options, choose }: SegmentsProps<T>) {
  return (
    <span class="seg" role="group" aria-label={label}>
      {options.map(([option, text, title]) => (
        <button
          key={text}
          type="button"
          aria-pressed={option === value}
          title={title}
          onClick={() => choose(option)}
        >
          {text}
        </button>
      ))}
    </span>
  );
}

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
