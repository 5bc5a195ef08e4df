// What views derive from the attention of a text: thumbnails, statistics and roles of all heads.
// Python has the roles too (heads/roles.py); golden traces hold the two equal.

import type { RoleId, RolePart, TokensPart } from "../../generated/payload.ts";
import { maximaOf, type WholePlanes } from "./decode.ts";

/** Cells of a thumbnail, at most, in each direction. */
export const THUMB_SIDE = 24;

/** Text of an attention block, and the keys that its queries see. */
export interface BlockText {
  readonly name: string;
  readonly causal: boolean;
  readonly queries: TokensPart;
  readonly keys: TokensPart;
  /** `layer query key`, 1 for visible; null if `causal` says all. */
  readonly visible?: Uint8Array | null;
}

/** Numbers of one layer's heads. */
export interface LayerNumbers {
  /** Largest weights of the cells of each head's thumbnail, `row column`. */
  readonly thumbs: readonly Float32Array[];
  /** Means over queries, null for a head without attention: `entropy` of a row in nats, `distance`
   *  in tokens, and shares of attention to `first`, `special`, `previous`, `same` and `next` token
   *  and `between` the two texts. */
  readonly statistics: Readonly<Record<string, (number | null)[]>>;
  readonly roles: readonly RolePart[];
}

export const NO_ROLE: RolePart = { role: null, share: null, queries: 0 };

const TOKEN_ROLES: readonly RoleId[] = ["duplicate_token", "induction"];
const OFFSETS: Partial<Record<RoleId, number>> = {
  previous_token: -1,
  next_token: 1,
  current_token: 0,
};
/** All roles, in the order in which Python chooses among equal shares. */
const NAMES: readonly RoleId[] = [
  "previous_token",
  "next_token",
  "current_token",
  "duplicate_token",
  "induction",
  "broad",
  "first_token",
  "special_token",
  "punctuation",
];
const SINKS: readonly RoleId[] = ["first_token", "special_token", "punctuation"];
/** Minimum values for a role: `RoleThresholds` of Python. */
const MIN = { share: 0.5, uniform: 2, broad: 0.5, queries: 3, induction: 0.55, kinds: 4, keys: 4 };

/** Keys that a query with a role attends to, and the vote of each query. */
interface Places {
  /** Keys of each query. */
  readonly keys: readonly (readonly number[])[];
  readonly votes: Float64Array;
  /** Number of queries that could show the role. */
  readonly count: number;
}

/** Derives the numbers of one text's heads, layer by layer. */
export class HeadNumbers {
  private readonly places: ReadonlyMap<RoleId, Places>;
  private readonly names: readonly string[];
  /** Rows with enough visible keys in all layers to be broad or narrow. */
  private readonly wide: readonly number[];
  private readonly isSelf: boolean;

  constructor(private readonly text: BlockText) {
    const { name, queries, keys, visible } = text;
    const [n, m] = [queries.tokens.length, keys.tokens.length];
    const isCross = name === "cross";
    this.isSelf = n === m && !isCross;
    this.places = placesOf(text, this.isSelf);
    const isPair = !isCross && new Set(queries.segments).size > 1;
    this.names = [
      ...["entropy", "first", ...(keys.special.some(Boolean) ? ["special"] : [])],
      ...(this.isSelf ? ["distance", "previous", "same", "next"] : []),
      ...(isPair ? ["between"] : []),
    ];
    const layers = visible ? [...new Array(visible.length / (n * m)).keys()] : [0];
    this.wide = [...queries.tokens.keys()].filter((query) =>
      layers.every((layer) => this.seen(layer, query) >= MIN.keys),
    );
  }

  /** Keys that a query sees, all of them or those listed. */
  private seen(layer: number, query: number, listed?: readonly number[]): number {
    const { causal, queries, keys, visible } = this.text;
    const [n, m] = [queries.tokens.length, keys.tokens.length];
    if (!visible) return listed?.length ?? (causal ? query + 1 + m - n : m);
    const row = visible.subarray((layer * n + query) * m, (layer * n + query + 1) * m);
    return listed ? listed.filter((key) => row[key]).length : row.reduce((a, b) => a + b, 0);
  }

  /** Numbers of one layer. Codes lose a little of each weight: rows are scaled to `sumOf`, the sums
   *  that they had; null for weights with all digits. */
  layer(
    index: number,
    planes: WholePlanes,
    heads: number,
    sumOf: ((head: number, query: number) => number) | null,
  ): LayerNumbers {
    const { queries, keys } = this.text;
    const [n, m] = [queries.tokens.length, keys.tokens.length];
    const counts = queries.tokens.map((_, query) => this.seen(index, query));
    const uniform = new Map<RoleId, number>();
    for (const [role, { keys, votes }] of this.places) {
      let [sum, total] = [0, 0];
      votes.forEach((vote, query) => {
        if (vote) sum += (vote * this.seen(index, query, keys[query])) / Math.max(1, counts[query]);
        total += vote;
      });
      uniform.set(role, total > 0 ? sum / total : 0);
    }
    const statistics = Object.fromEntries(
      this.names.map((name) => [name, [] as (number | null)[]]),
    );
    const roles: RolePart[] = [];
    const thumbs: Float32Array[] = [];
    for (let head = 0; head < heads; head++) {
      const map = planes.weights(head);
      thumbs.push(maximaOf(map, n, m, THUMB_SIDE));
      const entropies = planes.entropies(head);
      const { sums, rows, factors } = this.sums(map, entropies, (query) =>
        sumOf ? sumOf(head, query) : null,
      );
      const total = rows.reduce((a, b) => a + b, 0);
      sums.entropy = entropies.reduce((a, b) => a + b, 0);
      const attending = rows.reduce((count, row) => count + Number(row > 0), 0);
      for (const name of this.names) {
        const value = sums[name] / (name === "entropy" ? attending : total);
        statistics[name].push(total > 0 ? rounded(value) : null);
      }
      const shares = new Map<RoleId, number>();
      for (const [role, { keys, votes }] of this.places) {
        let [paid, all] = [0, 0];
        for (let query = 0; query < n; query++) {
          const vote = votes[query] * factors[query];
          if (!(vote > 0)) continue;
          for (const key of keys[query]) paid += vote * (map[query * m + key] || 0);
          all += votes[query] * rows[query];
        }
        shares.set(role, all > 0 ? paid / all : Number.NaN);
      }
      const breadth = this.wide.reduce((a, q) => a + Math.exp(entropies[q]) / counts[q], 0);
      const isLive = total > 0 && this.wide.length > 0;
      roles.push(this.choose(shares, uniform, isLive ? breadth / this.wide.length : 0));
    }
    return { thumbs, statistics, roles };
  }

  /** Sums of one head's weights, by statistic and by row; missing weights count as 0. Entropies are
   *  changed to those of the rows with their sums. */
  private sums(
    map: Float32Array,
    entropies: Float64Array,
    sumOf: (query: number) => number | null,
  ) {
    const { queries, keys } = this.text;
    const [n, m] = [queries.tokens.length, keys.tokens.length];
    const { special, segments } = keys;
    const rows = new Float64Array(n);
    const factors = new Float64Array(n);
    const all: Record<string, number> = { first: 0, special: 0, distance: 0, between: 0 };
    Object.assign(all, { previous: 0, same: 0, next: 0 });
    for (let query = 0; query < n; query++) {
      const segment = queries.segments[query];
      let [sum, distance, toSpecial, between] = [0, 0, 0, 0];
      for (let key = 0, at = query * m; key < m; key++, at++) {
        const weight = map[at];
        if (!(weight > 0)) continue;
        sum += weight;
        distance += weight * Math.abs(query - key);
        if (special[key]) toSpecial += weight;
        if (segments[key] !== segment) between += weight;
      }
      if (sum === 0) continue;
      const row = sumOf(query) ?? sum;
      const factor = row / sum;
      [rows[query], factors[query]] = [row, factor];
      entropies[query] = row > 0 ? factor * (entropies[query] - sum * Math.log(factor)) : 0;
      const weightAt = (key: number) => (key >= 0 && key < m && map[query * m + key]) || 0;
      all.distance += factor * distance;
      all.special += factor * toSpecial;
      all.between += factor * between;
      all.first += factor * weightAt(0);
      all.previous += factor * weightAt(query - 1);
      all.same += factor * weightAt(query);
      all.next += factor * weightAt(query + 1);
    }
    return { sums: all, rows, factors };
  }

  /** Apply the one rule for roles. */
  private choose(
    shares: ReadonlyMap<RoleId, number>,
    uniform: ReadonlyMap<RoleId, number>,
    breadth: number,
  ): RolePart {
    let best = NO_ROLE;
    let most = -1;
    const countOf = (role: RoleId) => this.places.get(role)!.count;
    const holds = (role: RoleId) => {
      const least = role === "induction" ? MIN.induction : MIN.share;
      const isLarge = (shares.get(role) || 0) >= Math.max(least, MIN.uniform * uniform.get(role)!);
      return isLarge && countOf(role) >= MIN.queries;
    };
    for (const role of NAMES) {
      if (!this.places.has(role) || !holds(role)) continue;
      // The first token is named before the special tokens, one of which it may be.
      if (role === "special_token" && holds("first_token")) continue;
      const share = shares.get(role)!;
      if (share > most) [most, best] = [share, { role, share, queries: countOf(role) }];
    }
    const { length } = this.wide;
    const isBroad = best.role === null && breadth >= MIN.broad && length >= MIN.queries;
    if (isBroad) best = { role: "broad", share: breadth, queries: length };
    return { ...best, share: best.share === null ? null : rounded(best.share) };
  }
}

/** Four digits. */
function rounded(value: number): number {
  return Number(value.toFixed(4));
}

/** Keys of each role. The first key, a sink of many heads, counts only for the sink roles. */
function placesOf(text: BlockText, isSelf: boolean): Map<RoleId, Places> {
  const { causal, queries, keys: part } = text;
  const { special } = part;
  const m = special.length;
  const past = m - queries.tokens.length;
  const isStop = part.tokens.map((token, i) => !special[i] && isPunctuation(token));
  const tokens = kindsOf(part.tokens.map((token, i) => (special[i] ? null : token)));
  const ofWords = kindsOf(part.word_texts);
  const words = part.words.map((word) => (word >= 0 ? ofWords[word] : -1));
  const isPlace: Partial<Record<RoleId, (query: number, key: number) => boolean>> = {
    first_token: (query, key) => key === 0 && (query > 0 || (m > 1 && !causal)),
    special_token: (_, key) => special[key] === 1,
    punctuation: (_, key) => isStop[key],
    duplicate_token: (query, key) =>
      words[query] >= 0 &&
      words[query] === words[key] &&
      !isStop[query] &&
      !isStop[key] &&
      part.words[query] !== part.words[key],
    induction: (query, key) =>
      key > 0 && key < query - 1 && tokens[query] >= 0 && tokens[key - 1] === tokens[query],
  };
  const places = new Map<RoleId, Places>();
  for (const role of NAMES) {
    const isSink = SINKS.includes(role);
    const offset = OFFSETS[role];
    const holds = isPlace[role];
    if ((!isSink && !isSelf) || (offset === undefined && !holds)) continue;
    const keys = queries.special.map((isSpecial, query) => {
      const found: number[] = [];
      if (isSpecial) return found;
      const last = causal ? Math.min(m - 1, query + past) : m - 1;
      if (offset !== undefined) {
        const key = query + offset;
        return key > 0 && key <= last ? [key] : found;
      }
      for (let key = isSink ? 0 : 1; key <= last; key++) if (holds!(query, key)) found.push(key);
      return found;
    });
    const kinds = role === "induction" ? kindsOf(part.tokens) : words;
    const votes = votesOf(keys, TOKEN_ROLES.includes(role) ? kinds : null, role);
    places.set(role, { keys, votes, count: votes.filter((vote) => vote > 0).length });
  }
  return places;
}

/** Weight of each query that could show a role. Roles of tokens give one vote to each token. */
function votesOf(
  keys: Places["keys"],
  kinds: readonly number[] | null,
  role: RoleId,
): Float64Array {
  const votes = Float64Array.from(keys, (found) => Number(found.length > 0));
  if (!kinds) return votes;
  const counts = new Map<number, number>();
  votes.forEach((vote, query) => {
    if (vote) counts.set(kinds[query], (counts.get(kinds[query]) ?? 0) + 1);
  });
  const least = role === "induction" ? MIN.kinds : MIN.queries;
  return votes.map((vote, i) => (vote && counts.size >= least ? 1 / counts.get(kinds[i])! : 0));
}

/** Numbers that are equal where texts are, ignoring case; -1 for null. */
function kindsOf(texts: readonly (string | null)[]): number[] {
  const numbers = new Map<string, number>();
  return texts.map((text) => {
    if (text === null) return -1;
    const folded = foldCase(stripped(text));
    if (!numbers.has(folded)) numbers.set(folded, numbers.size);
    return numbers.get(folded)!;
  });
}

/** Python's `casefold`, as to equality: upper case alone would join ı with i, and part ẞ from ß. */
function foldCase(text: string): string {
  return text.replace(/ẞ/g, "ss").replace(/[^ı]+/g, (t) => t.toUpperCase().toLowerCase());
}

const SPACES = "[\\p{White_Space}\\x1c-\\x1f]+";
const EDGES = new RegExp(`^${SPACES}|${SPACES}$`, "gu");

/** Python's `strip`. */
function stripped(text: string): string {
  return text.replace(EDGES, "");
}

/** Whether a token is only punctuation, by Unicode or ASCII. */
export function isPunctuation(token: string): boolean {
  const bare = stripped(stripped(token).replace(/^[Ġ▁]+/, ""));
  const text = bare.startsWith("##") && [...bare].length > 2 ? bare.slice(2) : bare;
  return /^[\p{P}!-/:-@[-`{-~]+$/u.test(text);
}
