// Elements without markup: text goes in as text, never as HTML.

type Child = Node | string | null;

interface Options {
  class?: string;
  text?: string;
  title?: string;
  attributes?: Record<string, string>;
  on?: Partial<Record<string, (event: Event) => void>>;
}

export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  options: Options = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (options.class) element.className = options.class;
  if (options.text !== undefined) element.textContent = options.text;
  if (options.title) element.title = options.title;
  for (const [name, value] of Object.entries(options.attributes ?? {})) {
    element.setAttribute(name, value);
  }
  for (const [name, listener] of Object.entries(options.on ?? {})) {
    if (listener) element.addEventListener(name, listener);
  }
  for (const child of children) if (child !== null) element.append(child);
  return element;
}

/** A button that stays in the background. */
export function quiet(text: string, title: string, click: () => void): HTMLButtonElement {
  const attributes = { type: "button" };
  return make("button", { class: "quiet", text, title, attributes, on: { click } });
}

/** A row of buttons of which one is pressed. */
export function segments(
  label: string,
  choices: readonly { readonly value: string; readonly label: string }[],
  change: (value: string) => void,
): { element: HTMLElement; set(value: string): void } {
  const buttons = choices.map(({ value, label: text }) =>
    make("button", {
      text,
      attributes: { type: "button", "aria-pressed": "false", "data-value": value },
      on: { click: () => change(value) },
    }),
  );
  const attributes = { role: "group", "aria-label": label };
  return {
    element: make("div", { class: "segments", attributes }, ...buttons),
    set(value) {
      for (const button of buttons) {
        button.setAttribute("aria-pressed", String(button.dataset.value === value));
      }
    },
  };
}
