// The line above the explorer in the web app: which model reads what.

import type { Wish } from "../data/server.ts";
import { make, quiet, select } from "./element.ts";
import controls from "./style/controls.css";
import form from "./style/form.css";
import frame from "./style/frame.css";

export interface ServedModel {
  readonly name: string;
  readonly title: string;
  /** Can it take a second text, read a target, write on? */
  readonly pairs: boolean;
  readonly targets: boolean;
  readonly generates: boolean;
}

/** The heads the reader has selected, `[layer, head]`, and what to call them. */
export interface Chosen {
  readonly heads: readonly (readonly [number, number])[];
  readonly label: string;
}

export class Form {
  readonly host = make("div");
  readonly root = make("div", { class: "asking" });
  private model: string;
  private readonly text = field("Text", "What should the model read?");
  private readonly pair = field("Second text", "optional");
  private readonly target = field("Decoder reads", "optional");
  private readonly generate = make("input", {
    attributes: { type: "number", min: "0", max: "200", value: "0", inputmode: "numeric" },
  });
  private readonly generateField = make(
    "label",
    { class: "field", title: "Tokens the model may add" },
    make("span", { text: "Write on" }),
    this.generate,
  );
  private readonly show = make("button", {
    class: "go",
    text: "Show",
    attributes: { type: "submit" },
  });
  private readonly without = quiet(
    "Switch off heads",
    "Show the model beside itself without the selected heads",
    () => this.submit(this.chosen().heads),
  );
  private readonly back = quiet("All heads on", "Show the model alone again, with all heads", () =>
    this.submit([]),
  );
  private readonly note = make("output", { class: "note", attributes: { role: "status" } });

  constructor(
    private readonly models: readonly ServedModel[],
    private readonly chosen: () => Chosen,
    private readonly send: (wish: Wish) => void,
  ) {
    this.model = models[0].name;
    const list = select(
      "Model",
      models.map(({ name }) => ({ value: name, label: name })),
      (name) => {
        this.model = name;
        this.fit();
      },
    );
    const line = make(
      "form",
      {
        on: {
          submit: (event) => {
            event.preventDefault();
            this.submit([]);
          },
        },
      },
      list.element,
      this.text.element,
      this.pair.element,
      this.target.element,
      this.generateField,
      this.show,
      this.without,
      this.back,
    );
    this.back.hidden = true;
    this.root.append(line, this.note);
    const sheet = new CSSStyleSheet();
    sheet.replaceSync([frame, controls, form].join("\n"));
    const shadow = this.host.attachShadow({ mode: "open" });
    shadow.adoptedStyleSheets = [sheet];
    shadow.append(this.root);
    this.fit();
    this.follow();
  }

  set value(text: string) {
    this.text.input.value = text;
  }

  focus(): void {
    this.text.input.focus();
  }

  /** Say what is going on, or what went wrong. */
  say(message: string, kind: "busy" | "problem" | "" = ""): void {
    this.note.textContent = message;
    this.note.className = `note ${kind}`;
    this.show.disabled = kind === "busy";
    this.follow();
    if (kind === "busy") this.without.disabled = true;
  }

  /** Follow the selection of the explorer. */
  follow(): void {
    const { heads, label } = this.chosen();
    this.without.disabled = heads.length === 0;
    this.without.textContent = label ? `Switch off ${label}` : "Switch off heads";
  }

  private fit(): void {
    const model = this.models.find(({ name }) => name === this.model) ?? this.models[0];
    this.pair.element.hidden = !model.pairs;
    this.target.element.hidden = !model.targets;
    this.generateField.hidden = !model.generates;
  }

  private submit(ablate: Wish["ablate"]): void {
    if (this.show.disabled) return;
    this.back.hidden = ablate.length === 0;
    this.send({
      model: this.model,
      text: this.text.input.value,
      pair: this.pair.element.hidden ? "" : this.pair.input.value,
      target: this.target.element.hidden ? "" : this.target.input.value,
      generate: this.generateField.hidden ? 0 : Number(this.generate.value) || 0,
      ablate,
    });
  }
}

function field(label: string, placeholder: string) {
  const input = make("input", {
    attributes: { type: "text", placeholder, autocomplete: "off", spellcheck: "false" },
  });
  const element = make("label", { class: "field wide" }, make("span", { text: label }), input);
  return { element, input };
}
