// Lab: requests traces of typed texts and opens an explorer on each.

import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import {
  type Input,
  RequestError,
  type requestTrace,
  type TraceReply,
  type TraceRequest,
} from "../data/backend.ts";
import { applyTheme, themeOf } from "../paint/theme.ts";
import { headCode } from "../state/selection.ts";
import { Session } from "../state/session.ts";
import { formatRequest, parseRequest } from "../state/trace_request.ts";
import { Button, Select } from "./controls.tsx";
import { showError } from "./error_message.tsx";
import { type Mounted, mount } from "./explorer.tsx";
import { headDifferences } from "./head_values.ts";
import { sheet } from "./style/explorer_style.ts";

export interface LabStart {
  readonly models: readonly ServedModel[];
  readonly examples: readonly LabExample[];
  readonly first: TraceRequest["inputs"];
  readonly limits: Limits;
}

interface Limits {
  readonly tokens: number;
  readonly seconds?: number;
}

/** Where traces come from: a server, or the model of a live page. */
export interface TraceSource {
  readonly requestTrace: typeof requestTrace;
  /** Traces of the page itself, shown where the address names no text. */
  readonly stored?: TraceReply;
}

export class Lab {
  private readonly stage = document.createElement("div");
  private readonly dialog = document.createElement("div");
  private readonly root: HTMLElement;
  private session: Session | null = null;
  private explorer: Mounted | null = null;
  private running = new AbortController();
  private request: TraceRequest;
  /** Request of the traces on screen; null for those of the page itself. */
  private shown: TraceRequest | null = null;

  constructor(
    host: HTMLElement,
    private readonly start: LabStart,
    private readonly source: TraceSource,
  ) {
    const shadow = this.dialog.attachShadow({ mode: "open" });
    const style = new CSSStyleSheet();
    style.replaceSync(`${sheet}\n:host { position: static; height: auto; }`);
    shadow.adoptedStyleSheets = [style];
    this.root = document.createElement("div");
    this.stage.className = "stage";
    shadow.append(this.root);
    host.replaceChildren(this.stage, this.dialog);
    const usual = start.models[0].name;
    const addressed = parseRequest(location.hash.slice(1), usual);
    const example = start.examples.at(0);
    const initial: TraceRequest = start.first.length
      ? { model: usual, inputs: start.first }
      : { model: example?.model ?? usual, inputs: example?.inputs ?? [{ text: "" }] };
    this.request = addressed ?? initial;
    document.addEventListener("keydown", (event) => {
      if (event.target === document.body) this.explorer?.key(event);
    });
    addEventListener("hashchange", () => {
      const fragment = location.hash.slice(1);
      const request = parseRequest(fragment, usual);
      const isNew = request && JSON.stringify(request) !== JSON.stringify(this.shown);
      if (isNew) void this.open(request, fragment);
      else if (!request && this.shown && source.stored) this.show(source.stored, fragment, null);
      else this.session?.open(fragment);
    });
    if (source.stored) {
      this.show(source.stored, location.hash.slice(1), null);
      document.documentElement.dataset.ready = "true";
    }
    if (source.stored ? addressed : this.request.inputs[0].text) {
      void this.open(this.request, location.hash.slice(1));
    } else if (!source.stored) {
      this.edit();
      document.documentElement.dataset.ready = "true";
    }
  }

  /** Show the form, with the error of the last request; for a comparison with two fields. */
  private edit(error = "", isPair = false): void {
    const { model, inputs } = this.request;
    const two = [inputs[0], inputs[1] ?? { ...inputs[0] }];
    const { models, examples, limits } = this.start;
    const scheme = this.session?.theme.peek().scheme ?? systemScheme();
    applyTheme(this.root, themeOf(scheme));
    this.root.className = "root";
    this.stage.inert = true;
    render(
      <LabForm
        {...{ models, examples, limits, error }}
        request={isPair ? { model, inputs: two } : this.request}
        isFirst={this.session === null}
        submit={(request) => void this.open(request, "")}
        close={() => this.close()}
      />,
      this.root,
    );
  }

  private close(): void {
    render(null, this.root);
    this.root.className = "";
    this.stage.inert = false;
  }

  /** Open an explorer on traces. */
  private show(reply: TraceReply, fragment: string, request: TraceRequest | null): void {
    const { header, traces, backend } = reply;
    const view = document.createElement("div");
    this.explorer?.dispose();
    this.stage.replaceChildren(view);
    this.shown = request;
    this.session = new Session(header, traces, backend, fragment);
    const typed = request && formatRequest(request);
    const { examples } = this.start;
    /** Request of what is on screen, the stored texts of a live page too. */
    const current = (): TraceRequest => {
      const { example } = this.session!.selection.peek();
      return request ?? { model: this.request.model, inputs: examples[example].inputs };
    };
    // A page inside a frame (about:srcdoc) has no address.
    const hasAddress = location.protocol !== "about:";
    this.explorer = mount(view, this.session, {
      changed: (now) => {
        if (hasAddress) history.replaceState(null, "", `#${typed ? `${typed}&` : ""}${now}`);
      },
      lab: {
        editText: () => {
          this.request = current();
          this.edit("", this.source.stored !== undefined);
        },
        readOne: () => {
          const { model, inputs } = current();
          void this.open({ model, inputs: [inputs[0]] }, "");
        },
        read: (text) => {
          const { model, inputs } = this.request;
          void this.open({ model, inputs: [{ ...inputs[0], text }] }, "");
        },
        examples: request || !this.source.stored ? examples.map(({ title }) => title) : [],
        openExample: (index) => {
          const { stored } = this.source;
          const { model, inputs } = examples[index];
          if (stored) this.show(stored, `example=${index}`, null);
          else void this.open({ model: model ?? this.request.model, inputs }, "");
        },
      },
      around: null,
    });
  }

  /** Request a trace; a newer request ends an older one. */
  private async open(request: TraceRequest, fragment: string): Promise<void> {
    this.running.abort();
    this.running = new AbortController();
    const { signal } = this.running;
    const before = this.session;
    this.request = request;
    this.close();
    if (before) before.requests.busy.value = READING;
    else this.stage.replaceChildren(statusLine(READING));
    try {
      const reply = await this.source.requestTrace(request, signal);
      if (signal.aborted) return;
      // A typed text is a new history entry: Back returns to the last one.
      if (before && fragment === "") history.pushState(null, "", location.href);
      // The model of a live page is the same: so is the head that is looked at, of one text.
      const isPair = request.inputs.length > 1;
      const isKept = this.source.stored && !isPair;
      this.show(reply, fragment || (isKept ? keptSelection(before) : ""), request);
      // A server opens a comparison on the head that differs most.
      if (this.source.stored && isPair && !/(^|&)head=/.test(fragment)) {
        await chooseDiffering(this.session!);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (!before) this.stage.replaceChildren();
      if (error instanceof RequestError && before && !before.can.trace) {
        before.requests.error.value = error.message;
      } else if (error instanceof RequestError) this.edit(error.message);
      else {
        this.explorer?.dispose();
        this.explorer = null;
        showError(this.stage, error);
      }
    }
    if (before) before.requests.busy.value = "";
    document.documentElement.dataset.ready = "true";
  }
}

const READING = "The model is reading …";

/** Choose the head that reads two texts most differently, in the pinned word's row or in all. */
async function chooseDiffering(session: Session): Promise<void> {
  const [a, b] = session.compared ?? [];
  await Promise.all([a, b].flatMap((block) => block?.planes.map((lazy) => lazy.whole())));
  const [first] = headDifferences(session)?.all ?? [];
  if (a && first) session.update({ layer: a.layers[first.layerIndex], head: first.head });
}

function keptSelection(session: Session | null): string {
  if (!session) return "";
  const { tab, color, ...id } = session.selection.peek();
  const shown = color === "difference" ? "" : `&color=${color}`;
  return `head=${headCode(id)}${shown}${tab ? `&tab=${tab}` : ""}`;
}

function statusLine(text: string): HTMLElement {
  const line = document.createElement("p");
  line.role = "status";
  line.textContent = text;
  line.style.cssText = "margin: 2rem; font: 1rem system-ui, sans-serif; color: GrayText";
  return line;
}

function systemScheme(): "light" | "dark" {
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

interface ServedModel {
  readonly name: string;
  readonly title: string;
  /** Whether it takes a second text or a target, generates, predicts. */
  readonly pairs: boolean;
  readonly targets: boolean;
  readonly generates: boolean;
  readonly predicts: boolean;
}

type LabExample = Readonly<{ title: string; model?: string; inputs: readonly Input[] }>;

interface LabFormProps {
  readonly models: readonly ServedModel[];
  readonly examples: readonly LabExample[];
  readonly limits: Limits;
  readonly request: TraceRequest;
  readonly error: string;
  readonly isFirst: boolean;
  submit(request: TraceRequest): void;
  close(): void;
}

function LabForm(props: LabFormProps) {
  const { models, examples, limits, error, isFirst } = props;
  const [request, setRequest] = useState(props.request);
  const first = request.inputs[0] ?? { text: "" };
  const second = request.inputs[1];
  const served = models.find(({ name }) => name === request.model) ?? models[0];
  const ref = useRef<HTMLTextAreaElement>(null);
  useEffect(() => ref.current?.focus(), []);
  const change = (index: number, changes: Partial<Input>) => {
    const inputs = [first, ...(second ? [second] : [])].map((input, i) =>
      i === index ? { ...input, ...changes } : input,
    );
    setRequest({ ...request, inputs });
  };
  const submit = (event: Event) => {
    event.preventDefault();
    props.submit({
      model: served.name,
      inputs: request.inputs.map((input) => fitted(input, served)),
    });
  };
  const field = (index: number, input: Input, letter: string) => {
    const optional = (name: "pair" | "target", label: string, hint: string) => (
      <label>
        <span>{label}</span>
        <input
          dir="auto"
          value={input[name] ?? ""}
          placeholder={`optional: ${hint}`}
          onInput={(event) => change(index, { [name]: event.currentTarget.value })}
        />
      </label>
    );
    return (
      <>
        <label>
          <span>{second ? `Text ${letter}` : "Text"}</span>
          <textarea
            ref={ref}
            rows={2}
            dir="auto"
            spellcheck={false}
            value={input.text}
            placeholder="What should the model read?"
            onInput={(event) => change(index, { text: event.currentTarget.value })}
            onKeyDown={(event) => {
              event.stopPropagation();
              if (event.key === "Enter" && !event.shiftKey) submit(event);
              if (event.key === "Escape" && !isFirst) props.close();
            }}
          />
        </label>
        {served.pairs && optional("pair", "with a second sentence", "read together with the text")}
        {served.targets && optional("target", "decoder reads", "what the decoder reads")}
      </>
    );
  };
  return (
    <div class="cover">
      <form
        class="pop dialog"
        aria-label="Models, pairs and examples"
        onSubmit={submit}
        onKeyDown={(event) => {
          if (event.key === "Escape" && !isFirst) props.close();
        }}
      >
        {models.length > 1 && (
          <label>
            <span>Model</span>
            <Select
              label="Model"
              value={served.name}
              options={models.map(({ name, title }) => [name, title || name])}
              choose={(model) => setRequest({ ...request, model })}
            />
          </label>
        )}
        {field(0, first, "A")}
        {second && field(1, second, "B")}
        {served.generates && (
          <label>
            <span>write on by</span>
            <input
              type="number"
              min="0"
              max="200"
              value={String(first.generate ?? 0)}
              onInput={(event) => change(0, { generate: Number(event.currentTarget.value) || 0 })}
            />
          </label>
        )}
        {error && (
          <p class="refused" role="alert">
            {error}
          </p>
        )}
        <p class="mut">
          At most {limits.tokens} tokens{limits.seconds ? ` and ${limits.seconds} seconds` : ""}.
        </p>
        {examples.length > 0 && (
          <div class="examples">
            <h2 class="sec">Examples</h2>
            {examples.map((example) => (
              <Button
                key={example.title}
                onClick={() =>
                  props.submit({ model: example.model ?? served.name, inputs: example.inputs })
                }
              >
                {example.title}
                <span dir="auto">
                  {example.inputs
                    .map(({ text, pair }) => (pair ? `${text} / ${pair}` : text))
                    .join(" | ")}
                </span>
              </Button>
            ))}
          </div>
        )}
        <div class="ends-row">
          <Button
            class="b"
            onClick={() =>
              setRequest({ ...request, inputs: second ? [first] : [first, { ...first }] })
            }
          >
            {second ? "One text" : "Compare two"}
          </Button>
          <span class="gap" />
          {!isFirst && (
            <Button class="b" onClick={props.close}>
              Cancel
            </Button>
          )}
          <button type="submit" class="go">
            Read it
          </button>
        </div>
      </form>
    </div>
  );
}

function fitted(input: Input, served: ServedModel): Input {
  return {
    text: input.text,
    ...(served.pairs && input.pair ? { pair: input.pair } : {}),
    ...(served.targets && input.target ? { target: input.target } : {}),
    ...(served.generates && input.generate ? { generate: input.generate } : {}),
  };
}
