// Scrubber over checkpoints of a training: all views show the text at the chosen step.

import { percent } from "../data/format.ts";
import { roleLook } from "../paint/roles.ts";
import { blockOf, headName } from "../state/selection.ts";
import { Button } from "./controls.tsx";
import { useSession } from "./explorer_context.ts";

const HEIGHT = 26;

export function StepScrubber({ steps }: { steps: readonly number[] }) {
  const session = useSession();
  const selection = session.selection.value;
  const { scheme } = session.theme.value;
  const { example, layer, head } = selection;
  const isHidden = session.exercise.isHidden.value;
  const go = (to: number) =>
    session.update({ example: Math.min(steps.length - 1, Math.max(0, to)) });
  // Role of the chosen head at each step: its color, and its share as height.
  const bars = session.header.examples.map(({ traces }) => {
    const block = blockOf(session.traces[traces[0]], selection.block);
    const row = block.roles.here ?? block.roles.heads;
    return row[block.layers.indexOf(layer)]?.[head];
  });
  const title = (i: number) => {
    const look = roleLook(bars[i]?.role ?? null);
    const share = bars[i]?.share == null ? "" : ` ${percent(bars[i].share)}`;
    return `Step ${steps[i].toLocaleString("en")}: ${look.name}${share}`;
  };
  const now = title(example);
  return (
    <div class="scrubber">
      <span class="step num">
        step <b>{steps[example].toLocaleString("en")}</b>
      </span>
      <Button
        class="b"
        aria-label="Previous step"
        disabled={example === 0}
        onClick={() => go(example - 1)}
      >
        ◂
      </Button>
      <div class="track">
        <div class="step-bars" aria-hidden="true">
          {!isHidden &&
            bars.map((bar, i) => {
              const look = roleLook(bar?.role ?? null);
              const isHollow = look.id === "unnamed";
              const height = isHollow ? 3 : 3 + (HEIGHT - 3) * (bar?.share ?? 0);
              const background = isHollow ? "var(--strong)" : look[scheme];
              return (
                // biome-ignore lint/a11y/useKeyWithClickEvents: the slider below has the keys
                // biome-ignore lint/a11y/noStaticElementInteractions: the slider below has the role
                <i
                  key={steps[i]}
                  class={i === example ? "on" : undefined}
                  style={{ height: `${height}px`, background }}
                  title={title(i)}
                  onClick={() => go(i)}
                />
              );
            })}
        </div>
        <input
          type="range"
          min="0"
          max={steps.length - 1}
          step="1"
          value={example}
          aria-label="Training step"
          aria-valuetext={now}
          onInput={(event) => go(Number(event.currentTarget.value))}
        />
      </div>
      <Button
        class="b"
        aria-label="Next step"
        disabled={example === steps.length - 1}
        onClick={() => go(example + 1)}
      >
        ▸
      </Button>
      {!isHidden && (
        <span class="mut role-now">
          {headName(selection)}: {now.split(": ")[1]}
        </span>
      )}
    </div>
  );
}
