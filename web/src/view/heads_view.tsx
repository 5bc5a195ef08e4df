// All heads of the model: role or value by color, symbol and name.

import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { RolePart } from "../../generated/payload.ts";
import { type HeadIndex, indexOfHead } from "../data/effects.ts";
import { formatNumber, percent } from "../data/format.ts";
import { isSink } from "../data/head_summary.ts";
import { named } from "../data/tokens.ts";
import {
  type CellLook,
  GAP,
  type Grid,
  gridOf,
  gridPictures,
  listOf,
  placeOf,
  rowsOf,
} from "../layout/heads_layout.ts";
import { headHue, inkOn, ROLES, roleColor, roleLook } from "../paint/roles.ts";
import { cssOf, mix, type Rgb, type Theme } from "../paint/theme.ts";
import { COLORS, type ColorBy, headCode, headName, isSameHead } from "../state/selection.ts";
import type { Session, Side } from "../state/session.ts";
import { Button, classes, Drawing, px, Segments, Select, Swatch } from "./controls.tsx";
import { useExplorer, useSession, useSize } from "./explorer_context.ts";
import {
  headDifferences,
  headEffects,
  headOrder,
  isElsewhere,
  rangeOf,
  type Share,
  shareOf,
  shownColor,
} from "./head_values.ts";
import { roleText } from "./selected_head.ts";

export function HeadsPane() {
  const session = useSession();
  const { sorted } = session.selection.value;
  const color = shownColor(session);
  const side = session.lead.value;
  const { ref, width, height } = useSize<HTMLDivElement>();
  const hasDifference = session.compared !== null;
  const choices = COLORS.filter((name) =>
    name === "difference"
      ? hasDifference
      : name === "effect"
        ? !isElsewhere(session, side)
        : name !== "distance" || side.block.statistics.distance !== undefined,
  );
  const count = side.block.layers.length * side.block.heads;
  const isHidden = session.exercise.isHidden.value;
  return (
    <section class="heads" aria-label="All heads">
      <div class="hd">
        <h2 class="sec spacious">All {count} heads</h2>
        {isHidden ? (
          <span class="mut push">colors are hidden while you guess</span>
        ) : (
          <>
            <Select
              kind="b push"
              label="Color heads by"
              value={color}
              options={choices.map((name) => [name, `by ${name}`])}
              choose={(name) => session.update({ color: name as ColorBy })}
            />
            <Segments
              label="Order of heads"
              value={sorted}
              options={[
                [false, "by layer", "layers down, heads across"],
                [true, "largest first", `largest ${color} first, with names`],
              ]}
              choose={(value) => session.update({ sorted: value })}
            />
          </>
        )}
      </div>
      <div class="gridwrap" ref={ref}>
        {width > 0 && <HeadGrid side={side} width={width} height={height} />}
      </div>
      {isHidden ? (
        <div class="legend mut">
          <BarsLegend side={side} />
        </div>
      ) : color === "role" ? (
        <RoleLegend side={side} />
      ) : (
        <ScaleLegend side={side} color={color} />
      )}
    </section>
  );
}

/** Says what the bars of a tile are. */
function BarsLegend({ side }: { side: Side }) {
  const session = useSession();
  const word = session.place(side, session.selection.value.word, "query");
  if (rowsOf(side.block, word) === null) return null;
  const { texts, pieces } = side.block.queryTokens;
  const text = named({ label: texts[word!], kind: pieces[word!]?.kind });
  return (
    <span class="source mut">
      bars: what “<bdi>{text}</bdi>” reads, in order
    </span>
  );
}

/** Choose the colors of each cell of the grid. */
function lookOf(
  roles: ReturnType<Session["roles"]>,
  theme: Theme,
  color: ColorBy | "none",
  value: Share,
): (layerIndex: number, head: number) => CellLook {
  const { panel, ink, positive, negative } = theme.rgb;
  return (layerIndex, head) => {
    if (value === null) {
      const { role } = roles[layerIndex][head];
      if (role === null || color === "none") return { paper: panel, ink };
      const hue = roleColor(roleLook(role), theme.scheme);
      // Broad heads are many and full of lines: at full strength they would dominate.
      if (role === "broad")
        return { paper: mix(panel, hue, 0.16), ink: mix(hue, ink, 0.35), hasSign: true };
      const isSinkRole = isSink(role);
      return {
        hasSign: !isSinkRole,
        paper: mix(panel, hue, isSinkRole ? 0.08 : 0.26),
        ink: isSinkRole ? mix(hue, ink, 0.35) : mix(hue, ink, 0.15),
      };
    }
    const share = value(layerIndex, head);
    if (share === null) return { paper: panel, ink: theme.rgb.strong };
    const tint: Rgb =
      color === "difference"
        ? mix(panel, headHue(0, theme.scheme), 0.85 * Math.abs(share) ** 0.8)
        : color === "effect"
          ? mix(panel, share >= 0 ? positive : negative, 0.9 * Math.abs(share) ** 0.8)
          : mix(panel, theme.scale[Math.round(255 * share)], 0.72);
    const isStrong = color !== "spread" && color !== "distance" && Math.abs(share) > 0.4;
    const line = isStrong && theme.scheme === "light" ? panel : ink;
    return { paper: tint, ink: mix(tint, line, 0.85) };
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
  const { filter, sorted, word } = session.selection.value;
  const isHidden = session.exercise.isHidden.value;
  const color = isHidden ? "none" : shownColor(session);
  const layers = block.layers.length;
  const hasGroups = block.groups !== null && new Set(block.groups[0]).size < block.heads;
  const isPhone = session.layout.value === "phone";
  const isList = sorted && !isHidden;
  const grid = useMemo(
    () =>
      isList
        ? listOf({ width }, layers * block.heads)
        : gridOf({ width, height }, layers, block.heads, hasGroups, {
            isTouched: isPhone,
            hasNames: color === "role",
          }),
    [width, height, layers, block.heads, hasGroups, isPhone, isList, color === "role"],
  );
  const value = isHidden ? null : shareOf(session, side);
  const roles = session.roles(side);
  const numbers = block.numbers.value;
  const [effects, candidate] = [session.requests.effects.value, session.candidate.value];
  const { against } = session.selection.value;
  const differing = color === "difference" ? headDifferences(session)?.all : null;
  const spots = useMemo(
    () => headOrder(session, side, value, isList),
    [side, isList, color, roles, numbers, effects, candidate, against, differing],
  );
  const pinned = session.place(side, word, "query");
  const rows = rowsOf(block, pinned);
  const isUnpacked = rows !== null;
  const ratio = Math.min(globalThis.devicePixelRatio || 1, 2);
  const marks = useMemo(
    () => gridPictures(block, grid, filter, ratio, spots, lookOf(roles, theme, color, value), rows),
    [block, grid, filter, theme, color, spots, numbers, pinned, isUnpacked],
  );
  const valueText = isList ? valueTexts(session, side, color) : null;
  const { layer, head } = session.selection.value;
  useLayoutEffect(() => {
    const chosen = ref.current?.querySelector(".cell.sel");
    const pane = ref.current?.parentElement;
    if (chosen && pane) reveal(chosen, pane);
  }, [grid, layer, head]);
  const lines = Math.ceil(spots.length / grid.across);
  return (
    <div
      ref={ref}
      class={`grid ${grid.label}`}
      role="grid"
      aria-label={isList ? `Heads sorted by ${color}` : "Heads: layers down, heads across"}
      aria-rowcount={lines}
      aria-colcount={grid.across}
      style={px({ width: grid.width, height: grid.height })}
    >
      <Drawing marks={marks} width={grid.width} height={grid.height} />
      {!isList && <Numbers side={side} grid={grid} hasGroups={hasGroups} />}
      {Array.from({ length: lines }, (_, row) => (
        <div role="row" tabIndex={-1} key={row} aria-rowindex={row + 1}>
          {spots
            .slice(row * grid.across, (row + 1) * grid.across)
            .map((spot, column) =>
              block.has(spot.layerIndex, spot.head) ? (
                <Cell
                  key={column}
                  side={side}
                  grid={grid}
                  place={row * grid.across + column}
                  number={valueText?.(spot) ?? ""}
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
  /** Value on a tile of a sorted grid. */
  readonly number: string;
}

/** Text of each head's value for a sorted grid. */
function valueTexts(session: Session, side: Side, color: ColorBy | "none") {
  const effects = color === "effect" ? headEffects(session, side) : null;
  const values = effects?.all ?? (color === "difference" ? headDifferences(session)?.all : null);
  const byHead = new Map(values?.map((one) => [`${one.layerIndex}/${one.head}`, one.value]));
  return ({ layerIndex, head }: HeadIndex): string => {
    const value = byHead.get(`${layerIndex}/${head}`);
    if (value !== undefined) return effects ? effects.format(value) : value.toFixed(2);
    if (color === "role") {
      const { share } = session.roles(side)[layerIndex][head];
      return share === null ? "" : percent(share);
    }
    if (color !== "spread" && color !== "distance") return "";
    const { entropy, distance } = side.block.statistics;
    const number = (color === "spread" ? entropy : distance)?.[layerIndex]?.[head];
    return number == null ? "" : formatNumber(color === "spread" ? Math.exp(number) : number);
  };
}

function Cell({ side, grid, place, number, layerIndex, head }: CellProps) {
  const explorer = useExplorer();
  const { session } = explorer;
  const { scheme } = session.theme.value;
  const selection = session.selection.value;
  const id = { layer: side.block.layers[layerIndex], head };
  const { role } = session.roles(side)[layerIndex][head];
  const look = roleLook(role);
  const isChosen = isSameHead(selection, id);
  const order = session.several?.findIndex((kept) => isSameHead(kept, id)) ?? -1;
  const isHidden = session.exercise.isHidden.value;
  const isOther = selection.role !== "" && selection.role !== look.id;
  const isOff = session.edits.isOff(id);
  const showsRole = !isHidden && shownColor(session) === "role" && look.id !== "unnamed";
  const hidesSign = grid.label === "none" || (isSink(role) && grid.label === "side");
  const { x, y } = placeOf(grid, place);
  const hue = order >= 0 ? cssOf(headHue(order, scheme)) : "";
  const magnify = (event: Event) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    explorer.magnified.value = { layerIndex, head, box };
  };
  const shrink = () => {
    explorer.magnified.value = null;
  };
  return (
    <button
      type="button"
      role="gridcell"
      class={classes("cell", isChosen && "sel", order >= 0 && "kept", isOther && "dim")}
      style={{
        ...px({ left: x, top: y, width: grid.cellWidth, height: grid.cellHeight }),
        ...(order >= 0 ? { "--hue": hue } : {}),
      }}
      aria-selected={isChosen}
      aria-colindex={(place % grid.across) + 1}
      tabIndex={isChosen ? 0 : -1}
      aria-label={`${headName(id)}${number && ` ${number}`}${isHidden ? "" : `: ${roleText(side, id)}`}${isOff ? ", switched off" : ""}`}
      data-head={headCode(id)}
      onClick={(event) => {
        shrink();
        const isAdded = explorer.adding.peek() || event.ctrlKey || event.metaKey || event.shiftKey;
        explorer.adding.value = false;
        if (isAdded && !isHidden) session.store.toggleAlso(id);
        else session.choose(id);
      }}
      onPointerEnter={(event) => event.pointerType === "mouse" && magnify(event)}
      onPointerLeave={shrink}
      onFocus={(event) => event.currentTarget.matches(":focus-visible") && magnify(event)}
      onBlur={shrink}
    >
      {grid.label === "list" && (
        <span class="named">
          {showsRole && <Swatch look={look} isHidden />}
          <b>{headName(id)}</b> <span class="num">{number}</span>
        </span>
      )}
      {showsRole && !hidesSign && grid.label !== "list" && (
        // The text is generated: the button's name has the role in full.
        <span
          class="role"
          data-text={grid.label === "name" ? look.short : look.symbol}
          style={{ background: look[scheme], color: inkOn(roleColor(look, scheme)) }}
        />
      )}
      {isOff && <span class="off" />}
    </button>
  );
}

export function noteOf(
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
  const rows = grid.cellHeight >= 11 ? 1 : grid.cellHeight >= 7 ? 2 : 5;
  return (
    <div aria-hidden="true">
      {hasGroups && (
        <span class="kv" title="Heads under one bracket share their keys and values">
          k, v
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
        l !== layer && (i % rows || (rows > 2 && Math.abs(l - layer) < 3)) ? null : (
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
  difference: "how differently the word reads in A and B, or after the edit: 0 to 1",
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
  const { numbers } = side.baseFiltered.block;
  const isOfText = side.block.roles.source === "text";
  const areKnown = hasBoth || !isOfText || (numbers.value !== null && !side.block.top);
  const source = hasBoth && named === "corpus" ? "over a corpus" : "in this text";
  return (
    <div class="legend" role="group" aria-label={`Roles ${source}; choose one to filter by`}>
      {ROLES.filter(({ id }) => areKnown && counts.has(id)).map((look) => (
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
      {hasBoth && (
        <Segments<"corpus" | "text">
          label="Roles"
          value={named}
          options={[
            ["corpus", "over a corpus"],
            ["text", "in this text"],
          ]}
          choose={(value) => session.update({ named: value, role: "" })}
        />
      )}
      {!hasBoth && (
        <span class="source mut">
          {numbers.error.value ||
            (numbers.value === null
              ? "reading all heads"
              : side.block.top && isOfText
                ? "roles need whole rows, or a corpus run"
                : `roles ${source}`)}
        </span>
      )}
      <BarsLegend side={side} />
    </div>
  );
}

type Scale = readonly [low: string, stops: readonly Rgb[], high: string, about: string];

/** Ends, colors and meaning of a scale; null while effects are not measured. */
function scaleOf(session: Session, side: Side, color: Exclude<ColorBy, "role">): Scale | null {
  const { rgb, scale, scheme } = session.theme.value;
  if (color === "difference") {
    const most = headDifferences(session)?.all[0]?.value ?? 0;
    const high = `differs by ${most.toFixed(2)}`;
    return ["reads the same", [rgb.panel, headHue(0, scheme)], high, ""];
  }
  if (color !== "effect") {
    const { low, high } = rangeOf(side, color);
    const shown = (value: number) =>
      color === "spread"
        ? `${formatNumber(Math.exp(value))} words`
        : `${formatNumber(value)} tokens`;
    const stops = [0, 64, 128, 192, 255].map((i) => scale[i]);
    return [shown(low), stops, shown(high), DESCRIPTIONS[color]];
  }
  const effects = headEffects(session, side);
  if (!effects) return null;
  const { all, format, what, unit, kind } = effects;
  const most = Math.max(0, ...all.map(({ value }) => Math.abs(value)));
  const high = `${format(most)} ${unit}`;
  return kind === "cosine_distance"
    ? ["0", [rgb.panel, rgb.positive], high, what]
    : [format(-most), [rgb.negative, rgb.panel, rgb.positive], high, `${what} without the head`];
}

function ScaleLegend({ side, color }: { side: Side; color: Exclude<ColorBy, "role"> }) {
  const session = useSession();
  const found = scaleOf(session, side, color);
  if (!found) {
    return (
      <div class="legend mut">
        {session.requests.progress.value ? "Being measured …" : "Not measured yet: see Effect."}
      </div>
    );
  }
  const [low, stops, high, about] = found;
  const colors = stops.map((rgb) => `rgb(${rgb.join(",")})`).join(",");
  return (
    <div class="legend scale">
      <span class="num">{low}</span>
      <i style={{ background: `linear-gradient(90deg, ${colors})` }} />
      <span class="num">{high}</span>
      {about && (
        <span class="source mut" title={about}>
          {about}
        </span>
      )}
      <BarsLegend side={side} />
    </div>
  );
}
