// Controls that pages and reports share.

import type { ReadonlySignal } from "@preact/signals";
import type { ComponentProps } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Entry } from "../data/tokens.ts";
import type { Mark } from "../layout/scene.ts";
import { paint, prepare } from "../paint/painter.ts";
import { inkOn, type RoleLook, roleColor } from "../paint/roles.ts";
import type { Session } from "../state/session.ts";
import { useSession } from "./explorer_context.ts";

/** CSS lengths in pixels. */
export function px(lengths: Readonly<Record<string, number>>): Record<string, string> {
  return Object.fromEntries(Object.entries(lengths).map(([name, length]) => [name, `${length}px`]));
}

export function consume(event: Event): void {
  event.preventDefault();
  event.stopPropagation();
}

export function Button(props: ComponentProps<"button">) {
  return <button type="button" {...props} />;
}

/** Verb for pointing at something: a touch screen has no hover. */
export function pointing(session: Session): "Tap" | "Hover" {
  const isTouch = session.layout.value === "phone" || matchMedia("(hover: none)").matches;
  return isTouch ? "Tap" : "Hover";
}

export function classes(...names: readonly (string | false | undefined)[]): string {
  return names.filter(Boolean).join(" ");
}

interface SwatchProps {
  readonly look: RoleLook;
  readonly isHidden?: boolean;
}

/** Symbol of a role on its color; hollow for heads without a role. */
export function Swatch({ look, isHidden }: SwatchProps) {
  const { scheme } = useSession().theme.value;
  const isHollow = look.id === "unnamed";
  const style = isHollow ? {} : { background: look[scheme], color: inkOn(roleColor(look, scheme)) };
  return (
    <span class={classes("sw", isHollow && "hollow")} style={style} aria-hidden={isHidden}>
      {look.symbol}
    </span>
  );
}

/** Letter of the text, after a word that both texts have. */
export function Where({ entries, index }: { entries: readonly Entry[]; index: number }) {
  const { label, segment, special } = entries[index];
  const isTwice = entries.some((entry) => entry.segment !== segment && entry.label === label);
  return isTwice && !special ? <sup class="letter">{"AB"[segment]}</sup> : null;
}

/** Copy a text. Pages from another machine have no clipboard unless they are encrypted: there, a
 *  hidden field is copied from. False if the browser refuses. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = document.body.appendChild(document.createElement("textarea"));
    field.value = text;
    field.select();
    const isDone = document.execCommand("copy");
    field.remove();
    return isDone;
  }
}

/** Button that copies a text, and says so. */
export function CopyButton({ text, label }: { text: () => string; label: string }) {
  const [said, setSaid] = useState("");
  const copy = async () => setSaid((await copyText(text())) ? "copied" : "not copied");
  return (
    <Button class="b" onClick={() => void copy()}>
      <span aria-live="polite">{said || label}</span>
    </Button>
  );
}

/** Shell command, copied by a click. Lines do not break between an option and its value. */
export function Command({ text }: { text: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => setCopied(await copyText(text));
  return (
    <Button class="command" title="Copy this" onClick={() => void copy()}>
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
    </Button>
  );
}

interface SegmentsProps<T> {
  readonly label: string;
  readonly kind?: string;
  readonly value: T;
  readonly options: readonly (readonly [value: T, text: string, title?: string])[];
  choose(value: T): void;
}

export function Segments<T>({ label, kind = "seg", value, options, choose }: SegmentsProps<T>) {
  return (
    <span class={kind} role="group" aria-label={label}>
      {options.map(([option, text, title]) => (
        <Button
          key={text}
          aria-pressed={option === value}
          title={title}
          onClick={() => choose(option)}
        >
          {text}
        </Button>
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

interface SelectProps {
  readonly kind?: string;
  readonly label?: string;
  readonly value: string;
  readonly options: readonly (readonly [value: string, text: string])[];
  choose(value: string): void;
}

export function Select({ kind, label, value, options, choose }: SelectProps) {
  const change = (event: Event) => choose((event.currentTarget as HTMLSelectElement).value);
  return (
    <select class={kind} aria-label={label} value={value} onChange={change}>
      {options.map(([option, text]) => (
        <option key={option} value={option}>
          {text}
        </option>
      ))}
    </select>
  );
}

export interface Tip {
  readonly clientX: number;
  readonly clientY: number;
  readonly heading: string;
  readonly rows: readonly (readonly [label: string, value: string, color?: string])[];
}

/** Show a tip inside its positioned parent, on the side of the pointer that has room. */
export function Tooltip({ kind, signal }: { kind: string; signal: ReadonlySignal<Tip | null> }) {
  const tip = signal.value;
  const ref = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element || !tip) return;
    Object.assign(element.style, { left: "0", top: "0" });
    const frame = element.offsetParent?.getBoundingClientRect() ?? new DOMRect();
    const { offsetWidth: width, offsetHeight: height } = element;
    const [x, y] = [tip.clientX - frame.left, tip.clientY - frame.top];
    const left = x + 14 + width > frame.width - 6 ? x - width - 12 : x + 14;
    const top = y + 16 + height > frame.height - 6 ? y - height - 10 : y + 16;
    Object.assign(element.style, { left: `${Math.max(4, left)}px`, top: `${Math.max(4, top)}px` });
  }, [tip]);
  const last = useRef(tip);
  last.current = tip ?? last.current;
  if (!last.current) return null;
  return (
    <div class={kind} role="tooltip" ref={ref} hidden={!tip}>
      <strong>{last.current.heading}</strong>
      {last.current.rows.map(([label, value, color], i) => (
        <div key={`${i}${label}`}>
          {color && <i style={{ background: color }} />}
          <span>{label}</span>
          <b>{value}</b>
        </div>
      ))}
    </div>
  );
}

export function Logo({ kind }: { kind?: string }) {
  return (
    <svg class={kind} width="18" height="18" viewBox="0 0 18 18" aria-hidden="true">
      <path d="M2 15C2 3 16 3 16 15" />
      <path class="inner" d="M2 15C2 9.5 9 9.5 9 15" />
      {[2, 9, 16].map((x) => (
        <circle key={x} cx={x} cy="15" r="1.4" />
      ))}
    </svg>
  );
}
