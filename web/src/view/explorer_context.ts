// Context of one explorer: its session, tooltip and open popover; hooks that views share.

import { signal } from "@preact/signals";
import { createContext } from "preact";
import { useContext, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Session } from "../state/session.ts";
import type { Tip } from "./controls.tsx";

/** Actions that a page has only in the lab, and reading another text in a notebook too. */
export interface LabActions {
  /** Read another text with the same model. */
  read(text: string): void;
  editText?(): void;
  /** Leave a comparison: read its first text alone. */
  readOne?(): void;
  /** Titles of the examples, and what opens one. */
  readonly examples?: readonly string[];
  openExample?(index: number): void;
}

export type Magnified = Readonly<{ layerIndex: number; head: number; box: DOMRect }>;

export class ExplorerContext {
  readonly tip = signal<Tip | null>(null);
  readonly open = signal("");
  /** Whether the next head that is clicked is drawn over the chosen one. */
  readonly adding = signal(false);
  /** Whether the sentence is a text field. */
  readonly typing = signal(false);
  /** Head under the pointer or the focus, with its place in the grid. */
  readonly magnified = signal<Magnified | null>(null);

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

  showTip({ clientX, clientY }: MouseEvent, heading: string, rows: Tip["rows"] = []): void {
    this.tip.value = { clientX, clientY, heading, rows };
  }

  hideTip = (): void => {
    this.tip.value = null;
  };

  clearHover = (): void => {
    this.session.point({});
    this.hideTip();
  };
}

export const Context = createContext<ExplorerContext | null>(null);

export function useExplorer(): ExplorerContext {
  return useContext(Context)!;
}

export function useSession(): Session {
  return useExplorer().session;
}

/** Focus a dialog while it is open, then return the focus. */
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

/** Follow the size of an element; with `hasHeight` false, only its width. */
export function useSize<T extends HTMLElement>(hasHeight = true) {
  const ref = useRef<T>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element) return;
    const read = () => {
      const { clientWidth: width } = element;
      const height = hasHeight ? element.clientHeight : 0;
      setSize((now) => (now.width === width && now.height === height ? now : { width, height }));
    };
    read();
    const observer = new ResizeObserver(read);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return { ref, ...size };
}

/** Scroll a box to an element in it, unless it is visible below the sticky heading. */
export function reveal(box: HTMLElement, element: HTMLElement, heading: number): void {
  const [outer, inner] = [box, element].map((node) => node.getBoundingClientRect());
  if (inner.top >= outer.top + heading && inner.bottom <= outer.top + box.clientHeight) return;
  box.scrollTop += inner.top - outer.top - box.clientHeight / 2;
}
