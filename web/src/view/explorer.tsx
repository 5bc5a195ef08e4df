// Explorer: sentence, heads, one head and its effect, inside one shadow root.

import { effect } from "@preact/signals";
import { render } from "preact";
import { useEffect } from "preact/hooks";
import { gridWidth } from "../layout/heads_layout.ts";
import { applyTheme } from "../paint/theme.ts";
import type { Session } from "../state/session.ts";
import { BottomSheet } from "./bottom_sheet.tsx";
import { Button, Tooltip } from "./controls.tsx";
import { EffectPane } from "./effect_view.tsx";
import { ExerciseBar } from "./exercise_view.tsx";
import { Context, ExplorerContext, type LabActions, useExplorer } from "./explorer_context.ts";
import { HeadPane } from "./head_view.tsx";
import { HeadsPane } from "./heads_view.tsx";
import { Help } from "./help.tsx";
import { handleKey } from "./keyboard.ts";
import { Magnifier } from "./magnifier.tsx";
import { Sentence } from "./sentence.tsx";
import { StoryBar, Tour } from "./story.tsx";
import { sheet } from "./style/explorer_style.ts";
import { Toolbar } from "./toolbar.tsx";

export interface Mounted {
  /** Handle a key that no element inside the explorer handled. */
  key(event: KeyboardEvent): void;
  dispose(): void;
}

interface MountOptions {
  changed(fragment: string): void;
  readonly lab: LabActions | null;
  /** Element whose color scheme the explorer follows (a notebook); null for the system's. */
  readonly around: HTMLElement | null;
}

export function mount(host: HTMLElement, session: Session, options: MountOptions): Mounted {
  const shadow = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const style = new CSSStyleSheet();
  style.replaceSync(sheet);
  shadow.adoptedStyleSheets = [style];
  const root = document.createElement("div");
  root.className = "root";
  shadow.replaceChildren(root);
  const explorer = new ExplorerContext(session, root, options.lab);
  const measure = () => {
    const { clientWidth: width, clientHeight: height } = root;
    const now = session.size.peek();
    if (width && (width !== now.width || height !== now.height)) {
      session.size.value = { width, height };
    }
  };
  measure();
  const observer = new ResizeObserver(measure);
  observer.observe(root);
  const follow = () => {
    session.system.value = isDark(options.around) ? "dark" : "light";
  };
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", follow);
  follow();
  const stops = [
    effect(() => {
      applyTheme(root, session.theme.value);
      root.dataset.theme = session.theme.value.scheme;
    }),
    effect(() => options.changed(session.store.fragment)),
  ];
  const key = (event: KeyboardEvent) => handleKey(event, explorer);
  root.addEventListener("keydown", key);
  render(
    <Context.Provider value={explorer}>
      <Explorer />
    </Context.Provider>,
    root,
  );
  return {
    key,
    dispose() {
      for (const stop of stops) stop();
      observer.disconnect();
      scheme.removeEventListener("change", follow);
      session.dispose();
      render(null, root);
    },
  };
}

/** Whether the background is dark; without one, the system's scheme. */
function isDark(around: HTMLElement | null): boolean {
  for (let element = around; element; element = element.parentElement) {
    const parts = /^rgba?\((\d+), (\d+), (\d+)(?:, ([\d.]+))?\)$/.exec(
      getComputedStyle(element).backgroundColor,
    );
    if (!parts || parts[4] === "0") continue;
    const [red, green, blue] = parts.slice(1).map(Number);
    return red * 0.3 + green * 0.59 + blue * 0.11 < 128;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

function Explorer() {
  const explorer = useExplorer();
  const { session } = explorer;
  const { embed, pane } = session.selection.value;
  const layout = session.layout.value;
  const { width, height } = session.size.value;
  const { heads } = session.sides.value[0].block;
  const isAlone = embed && pane !== 2;
  const shows = (which: number) => pane === which || !(isAlone || layout === "phone");
  const showsEffect = shows(3) && (isAlone || layout !== "middle");
  const columns =
    isAlone || layout === "phone"
      ? "minmax(0, 1fr)"
      : `${gridWidth(width, heads)}px minmax(0, 1fr)${layout === "wide" ? " 330px" : ""}`;
  useEffect(() => {
    const close = (event: MouseEvent) => {
      const inside = event
        .composedPath()
        .some(
          (node) => node instanceof HTMLElement && node.matches(".pop, [aria-haspopup], .story"),
        );
      if (inside) return;
      explorer.close();
      if (session.selection.peek().answers) session.update({ answers: false });
    };
    explorer.root.addEventListener("pointerdown", close);
    return () => explorer.root.removeEventListener("pointerdown", close);
  }, []);
  const kind = `page ${layout} ${height <= 560 ? "low" : ""} ${embed ? "embed" : ""}`;
  const isCovered = ["help", "word"].includes(explorer.open.value);
  return (
    <div class={kind}>
      <div class="under" inert={isCovered}>
        {!embed && <Toolbar />}
        {(!isAlone || pane === 4) && <Sentence />}
        {!(embed && pane === 4) && (
          <div class="panes" style={{ gridTemplateColumns: columns }}>
            {shows(1) && <HeadsPane />}
            {shows(2) && <HeadPane />}
            {showsEffect && <EffectPane />}
          </div>
        )}
        {!embed && <StoryBar />}
        <ExerciseBar />
        {!embed && layout === "phone" && <Navigation />}
      </div>
      {layout === "phone" && <BottomSheet />}
      <Help />
      <Tooltip kind="tip" signal={explorer.tip} />
      <Magnifier />
      {!embed && <Tour />}
      <Status />
    </div>
  );
}

const PANES = ["Heads", "This head", "Effect"];
const EXERCISE = "Your turn";

function Navigation() {
  const { session } = useExplorer();
  const { pane } = session.selection.value;
  return (
    <nav aria-label="Panes">
      {PANES.map((name, i) => (
        <Button
          key={name}
          aria-current={pane === i + 1 ? "page" : undefined}
          onClick={() => session.update({ pane: i + 1 })}
        >
          {name}
        </Button>
      ))}
      {session.exercise.questions.length > 0 && (
        <Button onClick={() => session.exercise.open(session.exercise.asked.peek() ? 0 : 1)}>
          {EXERCISE}
        </Button>
      )}
    </nav>
  );
}

function Status() {
  const { session } = useExplorer();
  const error = session.requests.error.value;
  // A step of the tour says on its card that the model runs, and leaves its element free.
  const isTouring = session.selection.value.story > 0;
  const text = error || (isTouring ? "" : session.requests.busy.value);
  return (
    <div class={`status ${error ? "problem" : ""}`} role="status" hidden={!text}>
      {text}
      {error && (
        <Button
          onClick={() => {
            session.requests.error.value = "";
          }}
        >
          Close
        </Button>
      )}
    </div>
  );
}
