// All heads of the model: what each does by color, sign and name; one click away.

import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { formatNumber, points } from "../data/number.ts";
import type { Role } from "../data/payload.ts";
import { percent } from "../data/words.ts";
import { type CellLook, GAP, type Grid, gridOf, gridPictures, placeOf } from "../layout/grid.ts";
import { mix, type Rgb } from "../paint/color.ts";
import { inkOn, roleColor, roleLook } from "../paint/roles.ts";
import type { Theme } from "../paint/theme.ts";
import {
  COLORS,
  type ColorBy,
  headName,
  isSameHead,
  RESTING,
  type Selection,
} from "../state/selection.ts";
import type { Session, Side } from "../state/session.ts";
import { useHere, useSession, useSize } from "./context.ts";
import { Drawing } from "./drawing.tsx";
import { type HeadEffect, headEffects } from "./effect_numbers.ts";
import { RoleLegend, rangeOf, SAYS, ScaleLegend } from "./legend.tsx";
import { roleWords } from "./look.ts";
import { type Share, spotsOf } from "./order.ts";

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
        <h2 class="sec roomy">All heads</h2>
        <span class="mut roomy push">by</span>
        <span class="seg" role="group" aria-label="Color heads by">
          {choices.map((name) => (
            <button
              key={name}
              type="button"
              aria-pressed={color === name}
              title={SAYS[name]}
              onClick={() => session.update({ color: name })}
            >
              {name}
            </button>
          ))}
        </span>
        <button
          type="button"
          class="b sort"
          aria-pressed={sorted}
          aria-label={`Sort by ${color}`}
          title={sorted ? "Back to layers and heads" : `Sort by ${color}, largest first`}
          onClick={() => session.update({ sorted: !sorted })}
        >
          ⇅
        </button>
      </div>
      <div class="gridwrap" ref={ref}>
        {width > 0 && <HeadGrid side={side} width={width} height={height} />}
      </div>
      {color === "role" ? <RoleLegend side={side} /> : <ScaleLegend side={side} color={color} />}
    </section>
  );
}

/** A number from 0 to 1 (or −1 to 1) for each head, by what the grid is colored by. */
export function shareOf(session: Session, side: Side): Share {
  const { color } = session.selection.value;
  if (color === "role") return null;
  if (color === "effect") {
    const effects = headEffects(session, side);
    if (!effects) return () => null;
    const most = Math.max(1e-9, ...effects.all.map(({ value }) => Math.abs(value)));
    const known = new Map(effects.all.map((one) => [`${one.layerIndex}/${one.head}`, one.value]));
    return (layerIndex, head) => {
      const value = known.get(`${layerIndex}/${head}`);
      return value === undefined ? null : value / most;
    };
  }
  const { low, high, table } = rangeOf(side, color);
  return (layerIndex, head) => {
    const value = table[layerIndex]?.[head] ?? null;
    return value === null ? null : (value - low) / Math.max(high - low, 1e-9);
  };
}

/** The same, ready to be painted. */
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
      const own = roleColor(roleLook(role), theme.scheme);
      const rests = RESTING.has(role) && role !== "broad";
      return {
        paper: mix(panel, own, rests ? 0.08 : 0.26),
        ink: rests ? mix(own, ink, 0.35) : mix(own, ink, 0.15),
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

interface GridProps {
  readonly side: Side;
  readonly width: number;
  readonly height: number;
}

function HeadGrid({ side, width, height }: GridProps) {
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
  const effects = session.effects.value;
  const spots = useMemo(() => spotsOf(session, side, value), [side, sorted, color, roles, effects]);
  const ratio = Math.min(globalThis.devicePixelRatio || 1, 2);
  const marks = useMemo(
    () => gridPictures(block, grid, filter, ratio, spots, lookOf(roles, theme, color, value)),
    [block, grid, filter, theme, color, spots, effects, session.selection.value.word],
  );
  const { layer, head } = session.selection.value;
  useLayoutEffect(() => {
    const chosen = ref.current?.querySelector(".cell.sel");
    chosen?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [grid, layer, head]);
  return (
    <div
      ref={ref}
      class={`grid ${grid.label} ${isPhone ? "touch" : ""}`}
      role="grid"
      aria-label={sorted ? `Heads sorted by ${color}` : "Heads: layers down, heads across"}
      aria-rowcount={layers}
      aria-colcount={block.heads}
      style={{ width: `${grid.width}px`, height: `${grid.height}px` }}
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

interface CellProps {
  readonly side: Side;
  readonly grid: Grid;
  /** Its number in the table. */
  readonly place: number;
  readonly layerIndex: number;
  readonly head: number;
}

function Cell({ side, grid, place, layerIndex, head }: CellProps) {
  const here = useHere();
  const { session } = here;
  const selection = session.selection.value;
  const layer = side.block.layers[layerIndex];
  const { role } = session.roles(side)[layerIndex][head];
  const look = roleLook(role);
  const isChosen = selection.layer === layer && selection.head === head;
  const isOff = session.isOff({ layer, head });
  const background = look.id === "unnamed" ? "" : look[session.theme.value.scheme];
  const showsRole = selection.color === "role" && look.id !== "unnamed";
  const { x, y } = placeOf(grid, place, side.block.heads);
  const style = {
    left: `${x}px`,
    top: `${y}px`,
    width: `${grid.cellWidth}px`,
    height: `${grid.cellHeight}px`,
  };
  const isKept = selection.also.some((id) => isSameHead(id, { layer, head }));
  const isQuiet = RESTING.has(look.id) && look.id !== "broad";
  const hidesSign = isQuiet && grid.label === "side";
  const ink = showsRole ? inkOn(roleColor(look, session.theme.value.scheme)) : "";
  return (
    <button
      type="button"
      role="gridcell"
      class={["cell", isChosen && "sel", isKept && "kept", isOther(selection, look.id) && "dim"]
        .filter(Boolean)
        .join(" ")}
      style={style}
      aria-selected={isChosen}
      aria-colindex={(place % side.block.heads) + 1}
      tabIndex={isChosen ? 0 : -1}
      aria-label={`${headName({ layer, head })}: ${roleWords(side, { layer, head })}${isOff ? ", switched off" : ""}`}
      data-head={`L${layer}H${head}`}
      onClick={(event) => {
        here.hush();
        if (event.ctrlKey || event.metaKey || event.shiftKey) {
          session.toggleAlso({ layer, head });
          return;
        }
        session.update({ layer, head, ...(session.layout.value === "phone" ? { pane: 2 } : {}) });
      }}
      onPointerMove={(event) =>
        event.pointerType === "mouse" &&
        here.say(event, headName({ layer, head }), noteOf(session, side, layerIndex, head))
      }
      onPointerLeave={here.hush}
    >
      {showsRole && !hidesSign && grid.label !== "none" && (
        <span class="role" style={{ background, color: ink }}>
          {grid.label === "name" ? (selection.sorted ? `${layer}.${head}` : look.short) : look.sign}
        </span>
      )}
      {!showsRole && selection.sorted && grid.label === "name" && (
        <span class="role">
          {layer}.{head}
        </span>
      )}
      {isOff && <span class="off" />}
    </button>
  );
}

function isOther({ role }: Selection, id: string): boolean {
  return role !== "" && role !== id;
}

function noteOf(
  session: Session,
  side: Side,
  layerIndex: number,
  head: number,
): [string, string][] {
  const { statistics } = side.block;
  const { source, heads, here } = side.baseLens.block.roles;
  const rows: [string, string][] = [];
  const say = (where: string, { role, share }: Role) =>
    rows.push([where, [roleLook(role).name, share === null ? "" : percent(share)].join(" ")]);
  if (source === "corpus") say("over the corpus", heads[layerIndex][head]);
  say("in this text", (here ?? heads)[layerIndex][head]);
  const spread = statistics.entropy?.[layerIndex][head];
  if (spread != null) rows.push(["spread over", `${formatNumber(Math.exp(spread))} words`]);
  const distance = statistics.distance?.[layerIndex][head];
  if (distance != null) rows.push(["mean distance", `${formatNumber(distance)} tokens`]);
  const effects = headEffects(session, side);
  const own = effects?.all.find((one) => one.layerIndex === layerIndex && one.head === head);
  if (effects && own) rows.push([`without it, ${effects.what}`, effectText(effects, own.value)]);
  return rows;
}

function effectText(effects: HeadEffect, value: number): string {
  return effects.kind === "turn" ? value.toFixed(3) : `${points(value)} points`;
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
      {hasGroups && <span class="kv">keys</span>}
      {runs.map(([from, to]) => (
        <span
          key={from}
          class="brk"
          style={{
            left: `${grid.left + from * pitch + 2}px`,
            width: `${(to - from + 1) * pitch - 6}px`,
          }}
          title={`heads ${from} to ${to} share keys and values`}
        />
      ))}
      {Array.from({ length: block.heads }, (_, h) =>
        h % stride === 0 || h === head ? (
          <span
            key={h}
            class={`cl ${h === head ? "on" : ""}`}
            style={{
              left: `${grid.left + h * pitch}px`,
              width: `${grid.cellWidth}px`,
              top: `${grid.top - 16}px`,
            }}
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
            style={{
              top: `${grid.top + i * (grid.cellHeight + GAP)}px`,
              height: `${grid.cellHeight}px`,
            }}
          >
            L{l}
          </span>
        ),
      )}
    </div>
  );
}

/** Stretches of equal numbers. */
function runsOf(groups: readonly number[]): [number, number][] {
  const runs: [number, number][] = [];
  groups.forEach((group, i) => {
    const last = runs.at(-1);
    if (last && groups[last[0]] === group) last[1] = i;
    else runs.push([i, i]);
  });
  return runs.filter(([from, to]) => to > from);
}
