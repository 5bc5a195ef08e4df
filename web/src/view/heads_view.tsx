// All heads of the model: role or value by color, symbol and name.

import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { RolePart } from "../../generated/payload.ts";
import { type HeadIndex, indexOfHead } from "../data/effects.ts";
import { formatNumber, percent } from "../data/format.ts";
import { isSink } from "../data/head_summary.ts";
import {
  type CellLook,
  GAP,
  type Grid,
  gridOf,
  gridPictures,
  placeOf,
} from "../layout/heads_layout.ts";
import { inkOn, ROLES, roleColor, roleLook } from "../paint/roles.ts";
import { mix, type Rgb, type Theme } from "../paint/theme.ts";
import { COLORS, type ColorBy, headCode, headName, isSameHead } from "../state/selection.ts";
import type { Session, Side } from "../state/session.ts";
import { Button, classes, Drawing, px, Segments, Swatch } from "./controls.tsx";
import { useExplorer, useSession, useSize } from "./explorer_context.ts";
import { headEffects, headOrder, rangeOf, type Share, shareOf } from "./head_values.ts";
import { roleText } from "./selected_head.ts";

export function HeadsPane() {
  const session = useSession();
  const { color, sorted } = session.selection.value;
  const side = session.lead.value;
  const { ref, width, height } = useSize<HTMLDivElement>();
  const choices = COLORS.filter(
    (name) => name !== "distance" || side.block.statistics.distance !== undefined,
  );
  return (
    <section class="heads" aria-label="All heads">
      <div class="hd">
        <h2 class="sec spacious">All heads</h2>
        <span class="mut spacious push">by</span>
        <Segments
          label="Color heads by"
          value={color}
          options={choices.map((name) => [name, name, DESCRIPTIONS[name]])}
          choose={(name) => session.update({ color: name })}
        />
        <Button
          class="b sort"
          aria-pressed={sorted}
          aria-label={`Sort by ${color}`}
          title={sorted ? "Back to layers and heads" : `Sort by ${color}, largest first`}
          onClick={() => session.update({ sorted: !sorted })}
        >
          ⇅
        </Button>
      </div>
      <div class="gridwrap" ref={ref}>
        {width > 0 && <HeadGrid side={side} width={width} height={height} />}
      </div>
      {color === "role" ? <RoleLegend side={side} /> : <ScaleLegend side={side} color={color} />}
    </section>
  );
}

/** Choose the colors of each cell of the grid. */
function lookOf(
  roles: ReturnType<Session["roles"]>,
  theme: Theme,
  color: ColorBy,
  value: Share,
): (layerIndex: number, head: number) => CellLook {
  const { panel, ink, positive, negative } = theme.rgb;
  return (layerIndex, head) => {
    if (value === null) {
      const { role } = roles[layerIndex][head];
      if (role === null) return { paper: panel, ink };
      const hue = roleColor(roleLook(role), theme.scheme);
      // Broad heads are many and full of lines: at full strength they would dominate.
      if (role === "broad") return { paper: mix(panel, hue, 0.1), ink: mix(panel, hue, 0.6) };
      const isSinkRole = isSink(role);
      return {
        paper: mix(panel, hue, isSinkRole ? 0.08 : 0.26),
        ink: isSinkRole ? mix(hue, ink, 0.35) : mix(hue, ink, 0.15),
      };
    }
    const share = value(layerIndex, head);
    if (share === null) return { paper: panel, ink: theme.rgb.strong };
    const tint: Rgb =
      color === "effect"
        ? mix(panel, share >= 0 ? positive : negative, 0.9 * Math.sqrt(Math.abs(share)))
        : mix(panel, theme.scale[Math.round(255 * share)], 0.72);
    return { paper: tint, ink: mix(tint, ink, 0.7) };
  };
}

/** Scroll a pane to an element. `scrollIntoView` would also scroll the page around a frame. */
function reveal(chosen: Element, pane: Element): void {
  const [box, seen] = [chosen.getBoundingClientRect(), pane.getBoundingClientRect()];
  pane.scrollBy(
    Math.min(0, box.left - seen.left) || Math.max(0, box.right - seen.right),
    Math.min(0, box.top - seen.top) || Math.max(0, box.bottom - seen.bottom),
  );
}

function HeadGrid({ side, width, height }: { side: Side; width: number; height: number }) {
  const session = useSession();
  const ref = useRef<HTMLDivElement>(null);
  const { block } = side;
  const theme = session.theme.value;
  const { color, filter, sorted } = session.selection.value;
  const layers = block.layers.length;
  const hasGroups = block.groups !== null && new Set(block.groups[0]).size < block.heads;
  const isPhone = session.layout.value === "phone";
  const grid = useMemo(
    () => gridOf({ width, height }, layers, block.heads, hasGroups, isPhone),
    [width, height, layers, block.heads, hasGroups, isPhone],
  );
  const value = shareOf(session, side);
  const roles = session.roles(side);
  const [effects, candidate] = [session.requests.effects.value, session.candidate.value];
  const spots = useMemo(
    () => headOrder(session, side, value),
    [side, sorted, color, roles, effects, candidate],
  );
  const ratio = Math.min(globalThis.devicePixelRatio || 1, 2);
  const marks = useMemo(
    () => gridPictures(block, grid, filter, ratio, spots, lookOf(roles, theme, color, value)),
    [block, grid, filter, theme, color, spots],
  );
  const { layer, head } = session.selection.value;
  useLayoutEffect(() => {
    const chosen = ref.current?.querySelector(".cell.sel");
    const pane = ref.current?.parentElement;
    if (chosen && pane) reveal(chosen, pane);
  }, [grid, layer, head]);
  return (
    <div
      ref={ref}
      class={`grid ${grid.label}`}
      role="grid"
      aria-label={sorted ? `Heads sorted by ${color}` : "Heads: layers down, heads across"}
      aria-rowcount={layers}
      aria-colcount={block.heads}
      style={px({ width: grid.width, height: grid.height })}
    >
      <Drawing marks={marks} width={grid.width} height={grid.height} />
      {!sorted && <Numbers side={side} grid={grid} hasGroups={hasGroups} />}
      {block.layers.map((layer, row) => (
        <div role="row" tabIndex={-1} key={layer} aria-rowindex={row + 1}>
          {spots
            .slice(row * block.heads, (row + 1) * block.heads)
            .map((spot, column) =>
              block.has(spot.layerIndex, spot.head) ? (
                <Cell
                  key={column}
                  side={side}
                  grid={grid}
                  place={row * block.heads + column}
                  {...spot}
                />
              ) : null,
            )}
        </div>
      ))}
    </div>
  );
}

interface CellProps extends HeadIndex {
  readonly side: Side;
  readonly grid: Grid;
  readonly place: number;
}

function Cell({ side, grid, place, layerIndex, head }: CellProps) {
  const explorer = useExplorer();
  const { session } = explorer;
  const { scheme } = session.theme.value;
  const selection = session.selection.value;
  const id = { layer: side.block.layers[layerIndex], head };
  const { role } = session.roles(side)[layerIndex][head];
  const look = roleLook(role);
  const isChosen = isSameHead(selection, id);
  const isKept = selection.also.some((kept) => isSameHead(kept, id));
  const isOther = selection.role !== "" && selection.role !== look.id;
  const isOff = session.edits.isOff(id);
  const showsRole = selection.color === "role" && look.id !== "unnamed";
  const hidesSign = grid.label === "none" || (isSink(role) && grid.label === "side");
  const { x, y } = placeOf(grid, place, side.block.heads);
  const number = `${id.layer}.${head}`;
  return (
    <button
      type="button"
      role="gridcell"
      class={classes("cell", isChosen && "sel", isKept && "kept", isOther && "dim")}
      style={px({ left: x, top: y, width: grid.cellWidth, height: grid.cellHeight })}
      aria-selected={isChosen}
      aria-colindex={(place % side.block.heads) + 1}
      tabIndex={isChosen ? 0 : -1}
      aria-label={`${headName(id)}: ${roleText(side, id)}${isOff ? ", switched off" : ""}`}
      data-head={headCode(id)}
      onClick={(event) => {
        explorer.hideTip();
        if (event.ctrlKey || event.metaKey || event.shiftKey) session.store.toggleAlso(id);
        else session.choose(id);
      }}
      onPointerMove={(event) =>
        event.pointerType === "mouse" &&
        explorer.showTip(event, headName(id), noteOf(session, side, layerIndex, head))
      }
      onPointerLeave={explorer.hideTip}
    >
      {showsRole && !hidesSign && (
        <span
          class="role"
          style={{ background: look[scheme], color: inkOn(roleColor(look, scheme)) }}
        >
          {grid.label !== "name" ? look.symbol : selection.sorted ? number : look.short}
        </span>
      )}
      {!showsRole && selection.sorted && grid.label === "name" && (
        <span class="role">{number}</span>
      )}
      {isOff && <span class="off" />}
    </button>
  );
}

function noteOf(
  session: Session,
  side: Side,
  layerIndex: number,
  head: number,
): [string, string][] {
  const { entropy, distance } = side.block.statistics;
  const { source, heads, here: inText } = side.baseFiltered.block.roles;
  const rows: [string, string][] = [];
  const addRole = (where: string, { role, share }: RolePart) =>
    rows.push([where, [roleLook(role).name, share === null ? "" : percent(share)].join(" ")]);
  if (source === "corpus") addRole("over the corpus", heads[layerIndex][head]);
  addRole("in this text", (inText ?? heads)[layerIndex][head]);
  const spread = entropy?.[layerIndex][head];
  if (spread != null) rows.push(["spread over", `${formatNumber(Math.exp(spread))} words`]);
  const apart = distance?.[layerIndex][head];
  if (apart != null) rows.push(["mean distance", `${formatNumber(apart)} tokens`]);
  const effects = headEffects(session, side);
  const effect = effects?.all[indexOfHead(effects.all, layerIndex, head)];
  if (effects && effect) {
    const change = `${effects.format(effect.value)} ${effects.unit}`.trim();
    rows.push([`without it, ${effects.what}`, change]);
  }
  return rows;
}

/** Layer and head numbers, and brackets over heads that share keys. */
function Numbers({ side, grid, hasGroups }: { side: Side; grid: Grid; hasGroups: boolean }) {
  const session = useSession();
  const { layer, head } = session.selection.value;
  const { block } = side;
  const pitch = grid.cellWidth + GAP;
  const groups = block.groups?.[Math.max(0, block.layers.indexOf(layer))] ?? [];
  const runs = hasGroups ? runsOf(groups) : [];
  const stride = pitch >= 22 ? 1 : pitch >= 16 ? 2 : 4;
  const rows = grid.cellHeight >= 11 ? 1 : 2;
  return (
    <div aria-hidden="true">
      {hasGroups && (
        <span class="kv" title="Heads under one bracket share their keys and values">
          keys
        </span>
      )}
      {runs.map(([from, to]) => (
        <span
          key={from}
          class="brk"
          style={px({ left: grid.left + from * pitch + 2, width: (to - from + 1) * pitch - 6 })}
          title={`heads ${from} to ${to} share keys and values`}
        />
      ))}
      {Array.from({ length: block.heads }, (_, h) =>
        h % stride === 0 || h === head ? (
          <span
            key={h}
            class={`cl ${h === head ? "on" : ""}`}
            style={px({ left: grid.left + h * pitch, width: grid.cellWidth, top: grid.top - 16 })}
          >
            {h === 0 ? "H0" : h}
          </span>
        ) : null,
      )}
      {block.layers.map((l, i) =>
        i % rows && l !== layer ? null : (
          <span
            key={l}
            class={`rl ${l === layer ? "on" : ""}`}
            style={px({ top: grid.top + i * (grid.cellHeight + GAP), height: grid.cellHeight })}
          >
            L{l}
          </span>
        ),
      )}
    </div>
  );
}

function runsOf(groups: readonly number[]): [number, number][] {
  const runs: [number, number][] = [];
  groups.forEach((group, i) => {
    const last = runs.at(-1);
    if (last && groups[last[0]] === group) last[1] = i;
    else runs.push([i, i]);
  });
  return runs.filter(([from, to]) => to > from);
}

const DESCRIPTIONS: Record<ColorBy, string> = {
  role: "",
  effect: "what the output loses or gains without the head",
  spread: "how many words a row is spread over (entropy)",
  distance: "how far away the words are that it reads",
};

function RoleLegend({ side }: { side: Side }) {
  const explorer = useExplorer();
  const { session } = explorer;
  const { role: chosen, named } = session.selection.value;
  const hasBoth = side.baseFiltered.block.roles.here !== undefined;
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
        <Button
          key={look.id}
          aria-pressed={chosen === look.id}
          onClick={() => session.update({ role: chosen === look.id ? "" : look.id })}
          onPointerMove={(event) =>
            event.pointerType === "mouse" && explorer.showTip(event, look.description)
          }
          onPointerLeave={explorer.hideTip}
        >
          <Swatch look={look} isHidden />
          {look.name} <span class="mut num">{counts.get(look.id)}</span>
        </Button>
      ))}
      {hasBoth ? (
        <Button
          class="source mut"
          title={`Name them ${named === "corpus" ? "on this text" : "over a corpus"} instead`}
          onClick={() =>
            session.update({ named: named === "corpus" ? "text" : "corpus", role: "" })
          }
        >
          named <u>{source}</u>
        </Button>
      ) : (
        <span class="source mut">named {source}</span>
      )}
    </div>
  );
}

function ScaleLegend({ side, color }: { side: Side; color: Exclude<ColorBy, "role"> }) {
  const session = useSession();
  const theme = session.theme.value;
  const css = (stops: readonly Rgb[]) =>
    `linear-gradient(90deg, ${stops.map((rgb) => `rgb(${rgb.join(",")})`).join(",")})`;
  if (color === "effect") {
    const effects = headEffects(session, side);
    if (!effects) {
      return (
        <div class="legend mut">
          {session.requests.progress.value ? "Being measured …" : "Not measured yet: see Effect."}
        </div>
      );
    }
    const { panel, positive, negative } = theme.rgb;
    const isDistance = effects.kind === "cosine_distance";
    const most = Math.max(0, ...effects.all.map(({ value }) => Math.abs(value)));
    const stops = isDistance ? [panel, positive] : [negative, panel, positive];
    const description = isDistance
      ? effects.what
      : `what ${effects.what} falls or rises by without the head`;
    return (
      <div class="legend scale">
        <span class="num">{isDistance ? "0" : effects.format(-most)}</span>
        <i style={{ background: css(stops) }} />
        <span class="num">
          {effects.format(most)} {effects.unit}
        </span>
        <span class="source mut" title={description}>
          {description}
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
      <span class="source mut" title={DESCRIPTIONS[color]}>
        {DESCRIPTIONS[color]}
      </span>
    </div>
  );
}
