// What the colors of all heads say: roles with their counts, or a scale with its ends.

import { formatNumber } from "../data/number.ts";
import type { Rgb } from "../paint/color.ts";
import { ROLES } from "../paint/roles.ts";
import type { ColorBy } from "../state/selection.ts";
import type { Side } from "../state/session.ts";
import { useHere, useSession } from "./context.ts";
import { headEffects } from "./effect_numbers.ts";
import { rangeOf } from "./order.ts";
import { Swatch } from "./parts.tsx";

export const SAYS: Record<ColorBy, string> = {
  role: "",
  effect: "what the output loses or gains without the head",
  spread: "how many words a row is spread over (entropy)",
  distance: "how far away the words are that it reads",
};

export function RoleLegend({ side }: { side: Side }) {
  const here = useHere();
  const { session } = here;
  const { role: chosen, named } = session.selection.value;
  const hasBoth = side.baseLens.block.roles.here !== undefined;
  const counts = new Map<string, number>();
  session.roles(side).forEach((row, layerIndex) => {
    row.forEach(({ role }, head) => {
      if (!side.block.has(layerIndex, head)) return;
      const id = role ?? "unnamed";
      counts.set(id, (counts.get(id) ?? 0) + 1);
    });
  });
  const source = hasBoth && named === "corpus" ? "over a corpus" : "on this text";
  return (
    <div class="legend" role="group" aria-label={`Roles ${source}; choose one to filter by`}>
      {ROLES.filter(({ id }) => counts.has(id)).map((look) => (
        <button
          key={look.id}
          type="button"
          aria-pressed={chosen === look.id}
          onClick={() => session.update({ role: chosen === look.id ? "" : look.id })}
          onPointerMove={(event) => event.pointerType === "mouse" && here.say(event, look.says)}
          onPointerLeave={here.hush}
        >
          <Swatch look={look} isHidden />
          {look.name} <span class="mut num">{counts.get(look.id)}</span>
        </button>
      ))}
      {hasBoth ? (
        <button
          type="button"
          class="source mut"
          title={`Name them ${named === "corpus" ? "on this text" : "over a corpus"} instead`}
          onClick={() =>
            session.update({ named: named === "corpus" ? "text" : "corpus", role: "" })
          }
        >
          named <u>{source}</u>
        </button>
      ) : (
        <span class="source mut">named {source}</span>
      )}
    </div>
  );
}

export function ScaleLegend({ side, color }: { side: Side; color: Exclude<ColorBy, "role"> }) {
  const session = useSession();
  const theme = session.theme.value;
  const css = (stops: readonly Rgb[]) =>
    `linear-gradient(90deg, ${stops.map((rgb) => `rgb(${rgb.join(",")})`).join(",")})`;
  if (color === "effect") {
    const effects = headEffects(session, side);
    if (!effects) {
      return (
        <div class="legend mut">
          {session.progress.value ? "Being measured …" : "Not measured yet: see Effect."}
        </div>
      );
    }
    const { panel, positive, negative } = theme.rgb;
    const isTurn = effects.kind === "turn";
    const most = Math.max(0, ...effects.all.map(({ value }) => Math.abs(value)));
    const stops = isTurn ? [panel, positive] : [negative, panel, positive];
    const says = isTurn ? effects.what : `what ${effects.what} falls or rises by without the head`;
    return (
      <div class="legend scale">
        <span class="num">{isTurn ? "0" : effects.format(-most)}</span>
        <i style={{ background: css(stops) }} />
        <span class="num">
          {effects.format(most)} {effects.unit}
        </span>
        <span class="source mut" title={says}>
          {says}
        </span>
      </div>
    );
  }
  const { low, high } = rangeOf(side, color);
  const shown = (value: number) =>
    color === "spread" ? `${formatNumber(Math.exp(value))} words` : `${formatNumber(value)} tokens`;
  return (
    <div class="legend scale">
      <span>{shown(low)}</span>
      <i style={{ background: css([0, 64, 128, 192, 255].map((i) => theme.scale[i])) }} />
      <span>{shown(high)}</span>
      <span class="source mut" title={SAYS[color]}>
        {SAYS[color]}
      </span>
    </div>
  );
}
