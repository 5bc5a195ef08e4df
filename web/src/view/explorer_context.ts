// The session and the tooltip, for every view inside one explorer.

import { signal } from "@preact/signals";
import { createContext } from "preact";
import { useContext, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Session } from "../state/session.ts";

/** A note beside the pointer. */
interface Tip {
  readonly x: number;
  readonly y: number;
  readonly heading: string;
  readonly rows: readonly (readonly [label: string, value: string])[];
}

/** What a page that stands in the lab can do besides. */
export interface LabActions {
  /** The form for another text. */
  editText(): void;
}

export class Here {
  readonly tip = signal<Tip | null>(null);
  /** The popover that is open; empty for none. */
  readonly open = signal("");

  constructor(
    readonly session: Session,
    readonly root: HTMLElement,
    readonly lab: LabActions | null,
  ) {}

  /** Open a popover, or close it where it is open. */
  toggle(name: string): void {
    this.open.value = this.open.peek() === name ? "" : name;
  }

  close = (): void => {
    this.open.value = "";
  };

  /** A note beside what the event is about. */
  say(event: MouseEvent, heading: string, rows: Tip["rows"] = []): void {
    const frame = this.root.getBoundingClientRect();
    this.tip.value = { x: event.clientX - frame.left, y: event.clientY - frame.top, heading, rows };
  }

  hush = (): void => {
    this.tip.value = null;
  };

  /** The pointer is over nothing any more. */
  leave = (): void => {
    this.session.point({});
    this.hush();
  };
}

export const HereContext = createContext<Here | null>(null);

export function useHere(): Here {
  return useContext(HereContext)!;
}

export function useSession(): Session {
  return useHere().session;
}

/** A dialog has the focus while it is open, and gives it back. */
export function useDialog(isOpen: boolean) {
  const ref = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (!isOpen || !ref.current) return;
    const before = (ref.current.getRootNode() as ShadowRoot).activeElement as HTMLElement | null;
    ref.current.focus();
    return () => requestAnimationFrame(() => before?.focus());
  }, [isOpen]);
  return ref;
}

/** The size of an element, followed. */
export function useSize<T extends HTMLElement>() {
  const ref = useRef<T>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element) return;
    const read = () => {
      const { clientWidth: width, clientHeight: height } = element;
      setSize((now) => (now.width === width && now.height === height ? now : { width, height }));
    };
    read();
    const observer = new ResizeObserver(read);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return { ref, ...size };
}

/** Scroll a box to an element in it, unless that is seen below the heading, which stays. */
export function reveal(box: HTMLElement, element: HTMLElement, heading: number): void {
  const [outer, inner] = [box, element].map((one) => one.getBoundingClientRect());
  if (inner.top >= outer.top + heading && inner.bottom <= outer.top + box.clientHeight) return;
  box.scrollTop += inner.top - outer.top - box.clientHeight / 2;
}
