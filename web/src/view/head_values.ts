// Values of all heads: colors, order and effects.

import { type EffectTable, type HeadIndex, type RankedHead, rank } from "../data/effects.ts";
import { points, signed } from "../data/format.ts";
import { printed } from "../data/tokens.ts";
import type { Block } from "../data/trace.ts";
import { ROLES } from "../paint/roles.ts";
import type { ColorBy } from "../state/selection.ts";
import type { Session, Side } from "../state/session.ts";

export function rangeOf(side: Side, color: "spread" | "distance") {
  const table = side.block.statistics[color === "spread" ? "entropy" : "distance"] ?? [];
  const values = table.flat().filter((value) => value !== null);
  return { table, low: Math.min(...values), high: Math.max(...values) };
}

/** Value of each head from 0 to 1 (or −1 to 1), null without one. Null instead of a function if
 *  roles color the grid. */
export type Share = ((layerIndex: number, head: number) => number | null) | null;

export function shareOf(session: Session, side: Side): Share {
  const color = shownColor(session);
  if (color === "role") return null;
  if (color === "effect" || color === "difference") {
    const all =
      color === "effect" ? headEffects(session, side)?.all : headDifferences(session)?.all;
    if (!all) return () => null;
    const most = Math.max(1e-9, ...all.map(({ value }) => Math.abs(value)));
    const values = new Map(all.map((one) => [`${one.layerIndex}/${one.head}`, one.value]));
    return (layerIndex, head) => {
      const value = values.get(`${layerIndex}/${head}`);
      return value === undefined ? null : value / most;
    };
  }
  const { low, high, table } = rangeOf(side, color);
  return (layerIndex, head) => {
    const value = table[layerIndex]?.[head] ?? null;
    return value === null ? null : (value - low) / Math.max(high - low, 1e-9);
  };
}

/** Value that colors the grid. Differences need two inputs or an edit; effects on the answer
 *  after another word than the pinned one are not shown. */
export function shownColor(session: Session): ColorBy {
  const { color } = session.selection.value;
  if (color === "difference" && !session.compared) return "role";
  return color === "effect" && isElsewhere(session, session.lead.value) ? "role" : color;
}

/** Whether effects were measured for the answer after another word than the pinned one. */
export function isElsewhere(session: Session, side: Side): boolean {
  const table = session.requests.effectsOf(side);
  const word = session.place(side, session.selection.value.word, "query");
  const isNext = side.base.predictions?.kind === "next";
  return (
    isNext &&
    table?.kind === "prediction" &&
    table.position !== null &&
    word !== null &&
    word !== table.position
  );
}

interface Differences {
  /** Token that rows are compared of; null for the mean over all. */
  readonly word: number | null;
  readonly all: readonly RankedHead[];
}

const differences = new WeakMap<Block, { other: Block; found: Map<number, Differences> }>();

/** Difference of the pinned word's rows, ½ Σ |a − b| from 0 to 1, or its mean over all words.
 *  Null without a comparison, or while layers are unpacked. */
export function headDifferences(session: Session): Differences | null {
  const { compared } = session;
  if (!compared) return null;
  const [a, b] = compared;
  const planes = [a, b].map((block) => block.planes.map((lazy) => lazy.value));
  if (planes.flat().some((plane) => plane === null)) return null;
  const { word } = session.selection.value;
  const known = differences.get(a);
  const made = known?.other === b ? known : { other: b, found: new Map<number, Differences>() };
  differences.set(a, made);
  const cached = made.found.get(word ?? -1);
  if (cached) return cached;
  const queries = word === null ? [...a.queryTokens.texts.keys()] : [word];
  const all = rank(a.layers.length, a.heads, (layerIndex, head) => {
    if (!a.has(layerIndex, head) || !b.has(layerIndex, head)) return Number.NaN;
    if (session.edits.isOff({ layer: a.layers[layerIndex], head })) return Number.NaN;
    const [one, other] = planes.map((layers) => layers[layerIndex]!);
    let sum = 0;
    for (const query of queries) {
      const row = other.row(head, query);
      one.row(head, query).forEach((weight, key) => {
        sum += Math.abs(weight - row[key]) || 0;
      });
    }
    return sum / 2 / queries.length;
  });
  const result = { word, all };
  made.found.set(word ?? -1, result);
  return result;
}

/** List the heads row by row; largest first if they are sorted. */
export function headOrder(
  session: Session,
  side: Side,
  share: Share,
  isSorted = session.selection.value.sorted,
): HeadIndex[] {
  const { block } = side;
  const spots = block.layers.flatMap((_, layerIndex) =>
    Array.from({ length: block.heads }, (_, head) => ({ layerIndex, head })),
  );
  if (!isSorted) return spots;
  const roles = session.roles(side);
  const size = ({ layerIndex, head }: HeadIndex): number => {
    if (!block.has(layerIndex, head)) return Number.NEGATIVE_INFINITY;
    if (share) return Math.abs(share(layerIndex, head) ?? -1);
    const { role, share: roleShare } = roles[layerIndex][head];
    const place = ROLES.findIndex(({ id }) => id === (role ?? "unnamed"));
    return (roleShare ?? 0) - 2 * place;
  };
  const sizes = new Map(spots.map((spot) => [spot, size(spot)]));
  return spots.sort((a, b) => sizes.get(b)! - sizes.get(a)!);
}

interface HeadEffect {
  /** Change of a probability, of log-odds, or of the text's vector. */
  readonly kind: "prediction" | "odds" | "cosine_distance";
  readonly what: string;
  /** Index of the answer that heads are ranked by. */
  readonly candidate: number;
  readonly all: readonly RankedHead[];
  readonly format: (value: number) => string;
  readonly unit: string;
  /** Probability or log-odds with all heads; null for vectors. */
  readonly now: number | null;
}

const cache = new WeakMap<EffectTable, Map<string, HeadEffect>>();

/** Effects of all heads; null if they were not measured. */
export function headEffects(session: Session, side: Side): HeadEffect | null {
  const table = session.requests.effectsOf(side);
  if (!table) return null;
  const last = table.kind === "cosine_distance" ? 0 : table.candidates.length - 1;
  const candidate = Math.min(session.candidate.value, last);
  const against = rivalOf(table, session.selection.value.against, candidate);
  const made = cache.get(table) ?? new Map<string, HeadEffect>();
  cache.set(table, made);
  const name = `${candidate}/${against}`;
  const effect = made.get(name) ?? effectOf(table, candidate, against, side);
  made.set(name, effect);
  return effect;
}

function rivalOf(table: EffectTable, against: string, candidate: number): number {
  if (table.kind === "cosine_distance" || !against.trim()) return -1;
  const index = table.candidates.findIndex((text) => text.trim() === against.trim());
  return index === candidate ? -1 : index;
}

function effectOf(
  table: EffectTable,
  candidate: number,
  against: number,
  { block }: Side,
): HeadEffect {
  const [layers, heads] = [block.layers.length, block.heads];
  if (table.kind === "cosine_distance") {
    const all = rank(layers, heads, table.distance);
    const format = (value: number) => value.toFixed(3);
    return {
      kind: "cosine_distance",
      what: "cosine distance of the text's vector",
      candidate,
      all,
      format,
      unit: "",
      now: null,
    };
  }
  const { before, without } = table;
  const name = (index: number) => `“${printed(table.candidates[index])}”`;
  if (against < 0) {
    const change = (layerIndex: number, head: number) =>
      without(layerIndex, head, candidate) - before[candidate];
    const all = rank(layers, heads, change);
    const what = name(candidate);
    const now = before[candidate];
    return { kind: "prediction", what, candidate, all, format: points, unit: "points", now };
  }
  const usual = Math.log(before[candidate] / before[against]);
  const all = rank(layers, heads, (layerIndex, head) => {
    const probability = (index: number) => without(layerIndex, head, index);
    return Math.log(probability(candidate) / probability(against)) - usual;
  });
  const what = `${name(candidate)} over ${name(against)}`;
  const unit = "in log-odds";
  return { kind: "odds", what, candidate, all, format: signed, unit, now: usual };
}
