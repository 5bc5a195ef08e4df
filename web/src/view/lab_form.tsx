// What the model should read: a text, a second one to compare, or one of the examples.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Input, Wish } from "../data/server.ts";

export interface ServedModel {
  readonly name: string;
  readonly title: string;
  /** Can it take a second text, read a target, write on, predict? */
  readonly pairs: boolean;
  readonly targets: boolean;
  readonly generates: boolean;
  readonly predicts: boolean;
}

export interface LabExample {
  readonly title: string;
  readonly model?: string;
  readonly inputs: readonly Input[];
}

interface LabFormProps {
  readonly models: readonly ServedModel[];
  readonly examples: readonly LabExample[];
  readonly limits: { readonly tokens: number; readonly seconds: number };
  readonly wish: Wish;
  readonly problem: string;
  readonly isFirst: boolean;
  ask(wish: Wish): void;
  close(): void;
}

export function LabForm(props: LabFormProps) {
  const { models, examples, limits, problem, isFirst } = props;
  const [wish, setWish] = useState(props.wish);
  const first = wish.inputs[0] ?? { text: "" };
  const second = wish.inputs[1];
  const served = models.find(({ name }) => name === wish.model) ?? models[0];
  const ref = useRef<HTMLTextAreaElement>(null);
  useEffect(() => ref.current?.focus(), []);
  const change = (index: number, changes: Partial<Input>) => {
    const inputs = [first, ...(second ? [second] : [])].map((input, i) =>
      i === index ? { ...input, ...changes } : input,
    );
    setWish({ ...wish, inputs });
  };
  const submit = (event: Event) => {
    event.preventDefault();
    props.ask({ model: served.name, inputs: wish.inputs.map((input) => fitted(input, served)) });
  };
  const field = (index: number, input: Input, letter: string) => (
    <>
      <label>
        <span>{second ? `Text ${letter}` : "Text"}</span>
        <textarea
          ref={index === 0 ? ref : null}
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
      {served.pairs && (
        <label>
          <span>with a second sentence</span>
          <input
            dir="auto"
            value={input.pair ?? ""}
            placeholder="optional: read together with the text"
            onInput={(event) => change(index, { pair: event.currentTarget.value })}
          />
        </label>
      )}
      {served.targets && (
        <label>
          <span>decoder reads</span>
          <input
            dir="auto"
            value={input.target ?? ""}
            placeholder="optional: what the decoder reads"
            onInput={(event) => change(index, { target: event.currentTarget.value })}
          />
        </label>
      )}
    </>
  );
  return (
    <div class="cover">
      <form
        class="pop dialog"
        aria-label="Text and examples"
        onSubmit={submit}
        onKeyDown={(event) => {
          if (event.key === "Escape" && !isFirst) props.close();
        }}
      >
        {models.length > 1 && (
          <label>
            <span>Model</span>
            <select
              aria-label="Model"
              value={served.name}
              onChange={(event) => setWish({ ...wish, model: event.currentTarget.value })}
            >
              {models.map(({ name, title }) => (
                <option key={name} value={name}>
                  {title || name}
                </option>
              ))}
            </select>
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
        {problem && (
          <p class="refused" role="alert">
            {problem}
          </p>
        )}
        <p class="mut">
          At most {limits.tokens} tokens and {limits.seconds} seconds.
        </p>
        {examples.length > 0 && (
          <div class="examples">
            <h2 class="sec">Examples</h2>
            {examples.map((example) => (
              <button
                key={example.title}
                type="button"
                onClick={() =>
                  props.ask({ model: example.model ?? served.name, inputs: example.inputs })
                }
              >
                {example.title}
                <span dir="auto">
                  {example.inputs
                    .map(({ text, pair }) => (pair ? `${text} / ${pair}` : text))
                    .join(" | ")}
                </span>
              </button>
            ))}
          </div>
        )}
        <div class="ends-row">
          <button
            type="button"
            class="b"
            onClick={() => setWish({ ...wish, inputs: second ? [first] : [first, { ...first }] })}
          >
            {second ? "One text" : "Compare two"}
          </button>
          <span class="gap" />
          {!isFirst && (
            <button type="button" class="b" onClick={props.close}>
              Cancel
            </button>
          )}
          <button type="submit" class="go">
            Read it
          </button>
        </div>
      </form>
    </div>
  );
}

/** Only what the model can take. */
function fitted(input: Input, served: ServedModel): Input {
  return {
    text: input.text,
    ...(served.pairs && input.pair ? { pair: input.pair } : {}),
    ...(served.targets && input.target ? { target: input.target } : {}),
    ...(served.generates && input.generate ? { generate: input.generate } : {}),
  };
}
