// The explorer: three views of one selection, inside one shadow root.

import { rowOf } from "../data/axis.ts";
import { type AskRow, ExactRows } from "../data/exact.ts";
import type { Trace } from "../data/trace.ts";
import { panesOf } from "../layout/panes.ts";
import { applyTheme, type Scheme, themeOf } from "../paint/theme.ts";
import { formatFragment, parseFragment } from "../state/fragment.ts";
import {
  blockOf,
  defaultSelection,
  fitSelection,
  type Selection,
  THEMES,
} from "../state/selection.ts";
import { Store } from "../state/store.ts";
import { make } from "./element.ts";
import { Filters } from "./filters.ts";
import { HeadView } from "./head.ts";
import { Help } from "./help.ts";
import { after, handleKey } from "./keyboard.ts";
import { ModelView } from "./model.ts";
import { NeuronView } from "./neurons.ts";
import { download, pngFile, sheet, svgFile } from "./saving.ts";
import { Scope } from "./scope.ts";
import { Search } from "./search.ts";
import { Status } from "./status.ts";
import { sheet as styles } from "./style/sheet.ts";
import { Toolbar } from "./toolbar.ts";
import { Tooltip } from "./tooltip.ts";

export interface ExplorerOptions {
  /** Where to open: the fragment of a link, or what Python asked for. */
  readonly fragment: string;
  /** Told of every change of the selection. */
  readonly changed: (fragment: string) => void;
  readonly ask: AskRow | null;
  /** Element whose colors tell whether the page around is dark; null for the system's choice. */
  readonly around: Element | null;
}

export class Explorer {
  private readonly scope: Scope;
  private readonly base: Selection;
  private readonly root = make("div", {
    class: "explorer",
    attributes: { role: "application", "aria-label": "headscope explorer", tabindex: "-1" },
  });
  private readonly panes = make("div", { class: "panes" });
  private readonly model: ModelView;
  private readonly head: HeadView;
  private readonly neurons: NeuronView;
  private readonly parts: { render(): void }[];
  private readonly help = new Help();
  private readonly search: Search;
  private readonly shadow: ShadowRoot;
  private readonly gone = new AbortController();

  constructor(
    host: HTMLElement,
    traces: readonly Trace[],
    private readonly options: ExplorerOptions,
  ) {
    this.base = fitSelection(defaultSelection(traces), traces);
    const start = parseFragment(options.fragment, this.base);
    const store = new Store(start, (selection) => fitSelection(selection, traces));
    const tooltip = new Tooltip();
    const theme = themeOf(this.scheme(store.selection));
    this.scope = new Scope(traces, store, new ExactRows(options.ask), tooltip, theme);
    this.search = new Search(this.scope, (row) => {
      this.head.renderPins();
      if (row !== null) this.head.reveal(row);
    });
    this.model = new ModelView(this.scope);
    this.head = new HeadView(this.scope);
    this.neurons = new NeuronView(this.scope);
    const toolbar = new Toolbar(this.scope, this.actions, this.search.element);
    const filters = new Filters(this.scope);
    const status = new Status(this.scope);
    this.parts = [toolbar, filters, status];
    this.panes.append(this.model.element, this.head.element, this.neurons.element);
    this.root.append(
      toolbar.element,
      filters.element,
      this.panes,
      status.element,
      this.help.element,
      tooltip.element,
    );
    this.shadow = host.shadowRoot ?? host.attachShadow({ mode: "open" });
    this.attach();
    store.onSelection((now, before) => this.update(now, before));
    this.render();
    this.revealPinned();
  }

  /** Let go of the page around: nothing of this explorer is heard of or kept any more. */
  dispose(): void {
    this.gone.abort();
    this.root.remove();
  }

  /** Handle a key that reached the page around. */
  key(event: KeyboardEvent): void {
    handleKey(event, this.scope, this.actions);
  }

  /** Go to the place that a fragment names. */
  open(fragment: string): void {
    this.scope.store.update(parseFragment(fragment, this.base));
  }

  /** As `open`, unless it is already there (a widget hears of its own changes). */
  follow(fragment: string): void {
    if (fragment !== formatFragment(this.scope.store.selection, this.base)) this.open(fragment);
  }

  /** What the reader is looking at. */
  get selection(): Selection {
    return this.scope.store.selection;
  }

  /** Whether it is drawn light or dark. */
  get schemeNow(): Scheme {
    return this.scope.theme.scheme;
  }

  /** The system's choice of light or dark. */
  static system(): Scheme {
    return globalThis.matchMedia?.("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }

  private readonly actions = {
    search: () => this.search.open(),
    help: () => this.help.show(),
    selectAll: () => this.head.selectAll(),
    cycleTheme: () =>
      this.scope.store.update({ theme: after(THEMES, this.scope.store.selection.theme) }),
    exportAs: (format: "svg" | "png") => void this.save(format),
  };

  private attach(): void {
    const sheetOfStyles = new CSSStyleSheet();
    sheetOfStyles.replaceSync(styles);
    this.shadow.adoptedStyleSheets = [sheetOfStyles];
    this.shadow.replaceChildren(this.root);
    this.root.addEventListener("keydown", (event) => this.key(event));
    const { signal } = this.gone;
    const size = new ResizeObserver(() => this.render());
    size.observe(this.root);
    signal.addEventListener("abort", () => size.disconnect());
    const dark = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
    dark?.addEventListener("change", () => this.render(), { signal });
    if (this.options.around) {
      const watch = new MutationObserver(() => this.render());
      signal.addEventListener("abort", () => watch.disconnect());
      const filter = [
        "class",
        "style",
        "data-jp-theme-light",
        "data-theme",
        "data-vscode-theme-kind",
      ];
      for (const element of [document.documentElement, document.body]) {
        watch.observe(element, { attributeFilter: filter });
      }
    }
  }

  private update(now: Selection, before: Selection): void {
    this.options.changed(formatFragment(now, this.base));
    const onlyPins = (Object.keys(now) as (keyof Selection)[]).every(
      (key) => key === "queries" || key === "keys" || now[key] === before[key],
    );
    const opensDrawer = now.queries.length > 0 !== before.queries.length > 0;
    if (onlyPins && !(opensDrawer && now.view === "all")) {
      this.head.renderPins();
      this.neurons.render();
      for (const part of this.parts) part.render();
    } else {
      this.render();
      if (opensDrawer) this.revealPinned();
    }
  }

  /** Bring the pinned query into sight, where the pane is too low for all tokens. */
  private revealPinned(): void {
    const { selection } = this.scope.store;
    const query = selection.queries.at(-1);
    if (query === undefined || this.head.element.hidden) return;
    const row = rowOf(this.scope.lens(this.scope.leading).rows, query);
    if (row >= 0) this.head.reveal(row);
  }

  private render(): void {
    const { scope } = this;
    const { selection } = scope.store;
    const scheme = this.scheme(selection);
    if (scheme !== scope.theme.scheme) scope.theme = themeOf(scheme);
    applyTheme(this.root, scope.theme);
    for (const part of this.parts) part.render();
    const block = blockOf(scope.traces[scope.leading], selection);
    const panes = panesOf({
      width: this.panes.clientWidth,
      height: this.panes.clientHeight,
      view: selection.view,
      layers: block.layers.length,
      heads: block.heads,
      sorted: selection.sort !== "",
      neurons: selection.queries.length > 0 && block.vectors !== null,
    });
    this.panes.style.gridTemplateColumns = panes.columns;
    this.panes.style.gridTemplateRows = panes.rows;
    this.panes.style.gridTemplateAreas = panes.areas;
    const active = this.shadow.activeElement;
    for (const name of ["model", "head", "neurons"] as const) {
      const { element } = this[name];
      // Keys go on working where the pane that had them closes.
      if (!panes[name] && active && element.contains(active)) this.root.focus();
      element.hidden = !panes[name];
    }
    for (const name of ["model", "head", "neurons"] as const) {
      if (panes[name]) this[name].render();
    }
  }

  private scheme(selection: Selection): Scheme {
    if (selection.theme !== "auto") return selection.theme;
    const around = this.options.around && schemeAround(this.options.around);
    if (around) return around;
    return Explorer.system();
  }

  private async save(format: "svg" | "png"): Promise<void> {
    const { selection } = this.scope.store;
    const { model } = this.scope.traces[0];
    const heads = selection.heads.map((head) => `H${head}`).join(" ");
    const place = selection.view === "model" ? "all heads" : `L${selection.layer} ${heads}`;
    const views = [this.model, this.head, this.neurons].filter(({ element }) => !element.hidden);
    const sections = views.map((view) => ({
      title: views.length > 1 ? view.title : "",
      scenes: view.scenes(),
    }));
    const title = [model, place].filter(Boolean).join(" · ");
    const scene = sheet(title, sections, this.scope.theme);
    const file = format === "svg" ? svgFile(scene) : await pngFile(scene);
    download(file, `headscope-${place.toLowerCase().replaceAll(" ", "-")}.${format}`);
  }
}

/** Whether the page around is dark, by what it says or by its background; null if it does not say. */
export function schemeAround(element: Element): Scheme | null {
  const { body } = element.ownerDocument;
  const said = body.dataset.jpThemeLight ?? null;
  if (said !== null) return said === "true" ? "light" : "dark";
  for (let at: Element | null = element; at; at = at.parentElement) {
    const parts =
      getComputedStyle(at)
        .backgroundColor.match(/[\d.]+/g)
        ?.map(Number) ?? [];
    if (parts.length < 3 || parts[3] === 0) continue;
    return 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2] < 128 ? "dark" : "light";
  }
  return null;
}
