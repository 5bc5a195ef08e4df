// Numbers of every head in one text, from its attention: thumbnails, statistics, roles. Python
// computes the same for stored traces (page/payload_blocks.py, heads/roles.py); golden traces hold
// the two equal.

import type { BlockPart, RoleId, RolePart, TokensPart } from "../../generated/payload.ts";

/** Attention of a text on itself, `layer head query key`. */
export interface Attention {
  readonly layers: number;
  readonly heads: number;
  readonly tokens: number;
  readonly weights: Float32Array;
  readonly causal: boolean;
}

const LAST_CODE = 254;
const THUMB_SIDE = 24;

/** Thumbnails of all heads: the maximum of each cell, as coarse codes. */
export function thumbsOf({ layers, heads, tokens, weights }: Attention) {
  const side = Math.min(tokens, THUMB_SIDE);
  const cells = Uint16Array.from({ length: tokens }, (_, i) => cellOf(i, tokens, side));
  const codes = new Uint8Array(layers * heads * side * side);
  for (let i = 0; i < weights.length; i++) {
    const key = i % tokens;
    const row = (i - key) / tokens;
    const query = row % tokens;
    const cell = ((row - query) / tokens) * side * side + cells[query] * side + cells[key];
    const code = codeOf(weights[i]);
    if (code > codes[cell]) codes[cell] = code;
  }
  return { rows: side, columns: side, codes };
}

function cellOf(place: number, count: number, side: number): number {
  let cell = Math.floor((place * side) / count);
  // Cells start at ⌊cell · count / side⌋.
  while (cell + 1 < side && Math.floor(((cell + 1) * count) / side) <= place) cell++;
  return cell;
}

/** Coarse code of a weight, in float32 as Python computes it; halves round to even. */
function codeOf(weight: number): number {
  const root = Math.fround(Math.sqrt(Math.min(1, Math.max(0, weight))));
  const scaled = Math.fround(root * LAST_CODE);
  const low = Math.floor(scaled);
  const rest = scaled - low;
  return rest > 0.5 || (rest === 0.5 && low % 2 === 1) ? low + 1 : low;
}

/** Entropy of each row in nats, `layer head query`. */
function rowEntropies({ tokens, weights }: Attention): Float64Array {
  const entropies = new Float64Array(weights.length / tokens);
  for (let i = 0; i < weights.length; i++) {
    const weight = weights[i];
    if (weight > 0) entropies[Math.floor(i / tokens)] -= weight * Math.log(weight);
  }
  return entropies;
}

const TOKEN_ROLES = ["duplicate_token", "induction"] as const;
const OFFSETS = { previous_token: -1, next_token: 1, current_token: 0 } as const;
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
/** Minimum values for a role: `RoleThresholds` of Python. */
const MIN = { share: 0.5, uniform: 2, broad: 0.5, queries: 3, induction: 0.55, kinds: 4, keys: 4 };

/** Keys that a query with a role attends to, and the vote of each query. */
interface Places {
  /** Keys of each query. */
  readonly keys: readonly (readonly number[])[];
  readonly votes: Float64Array;
}

/** Statistics and roles of all heads. */
export function headNumbers(
  attention: Attention,
  part: TokensPart,
): { statistics: BlockPart["statistics"]; roles: RolePart[][] } {
  const { layers, heads, tokens: n, weights, causal } = attention;
  const entropies = rowEntropies(attention);
  const places = placesOf(part, causal);
  const visible = (query: number) => (causal ? query + 1 : n);
  const uniform = new Map(
    [...places].map(([role, place]) => [role, uniformShare(place, visible)] as const),
  );
  const names = ["entropy", "first", ...(part.special.some(Boolean) ? ["special"] : [])];
  names.push("distance", "previous", "same", "next");
  const statistics: BlockPart["statistics"] = Object.fromEntries(names.map((name) => [name, []]));
  const roles: RolePart[][] = [];
  for (let layer = 0; layer < layers; layer++) {
    for (const name of names) statistics[name].push([]);
    roles.push([]);
    for (let head = 0; head < heads; head++) {
      const start = (layer * heads + head) * n * n;
      const map = weights.subarray(start, start + n * n);
      const ofRows = entropies.subarray(start / n, start / n + n);
      const { sums, rows, total } = sumsOf(map, ofRows, part);
      for (const name of names) {
        const divisor = name === "entropy" ? Math.max(1, rows.filter((r) => r > 0).length) : total;
        const value = total > 0 ? rounded(sums[name] / divisor) : null;
        statistics[name][layer].push(value);
      }
      const shares = new Map<RoleId, number>();
      for (const [role, place] of places) shares.set(role, shareOf(map, rows, place));
      roles[layer].push(chooseRole(shares, places, uniform, breadth(ofRows, visible, total)));
    }
  }
  return { statistics, roles };
}

/** Sums of one head's weights, by statistic and by row. */
function sumsOf(map: Float32Array, entropies: Float64Array, { special }: TokensPart) {
  const n = entropies.length;
  const rows = new Float64Array(n);
  const sums: Record<string, number> = { entropy: entropies.reduce((a, b) => a + b, 0) };
  for (const name of ["first", "special", "distance", "previous", "same", "next"]) sums[name] = 0;
  for (let query = 0; query < n; query++) {
    for (let key = 0; key < n; key++) {
      const weight = map[query * n + key];
      rows[query] += weight;
      sums.distance += weight * Math.abs(query - key);
      if (special[key]) sums.special += weight;
    }
    sums.first += map[query * n];
    sums.same += map[query * n + query];
    if (query > 0) sums.previous += map[query * n + query - 1];
    if (query + 1 < n) sums.next += map[query * n + query + 1];
  }
  return { sums, rows, total: rows.reduce((a, b) => a + b, 0) };
}

/** Four digits, as Python stores them. */
function rounded(value: number): number {
  return Number(value.toFixed(4));
}

/** Keys of each role. The first key, a sink of many heads, counts only for the sink roles. */
function placesOf(part: TokensPart, causal: boolean): Map<RoleId, Places> {
  const { special } = part;
  const n = special.length;
  const isStop = part.tokens.map((token, i) => !special[i] && isPunctuation(token));
  const tokens = kindsOf(part.tokens.map((token, i) => (special[i] ? null : token)));
  const ofWords = kindsOf(part.word_texts);
  const words = part.words.map((word) => (word >= 0 ? ofWords[word] : -1));
  const isPlace: Partial<Record<RoleId, (query: number, key: number) => boolean>> = {
    first_token: (query, key) => key === 0 && (query > 0 || (n > 1 && !causal)),
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
    const offset = role in OFFSETS ? OFFSETS[role as keyof typeof OFFSETS] : null;
    const holds = isPlace[role];
    if (offset === null && !holds) continue;
    const isSinkRole = ["first_token", "special_token", "punctuation"].includes(role);
    const keys = special.map((isSpecial, query) => {
      const found: number[] = [];
      if (isSpecial) return found;
      const last = causal ? query : n - 1;
      for (let key = isSinkRole ? 0 : 1; key <= last; key++) {
        if (holds ? holds(query, key) : key - query === offset) found.push(key);
      }
      return found;
    });
    const kinds = role === "induction" ? kindsOf(part.tokens) : words;
    const isOfTokens = (TOKEN_ROLES as readonly string[]).includes(role);
    places.set(role, { keys, votes: votesOf(keys, isOfTokens ? kinds : null, role) });
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

/** Attention to a place as a share of all that its queries pay; NaN without a query. */
function shareOf(map: Float32Array, rows: Float64Array, { keys, votes }: Places): number {
  const n = rows.length;
  let [paid, total] = [0, 0];
  for (let query = 0; query < n; query++) {
    if (votes[query] === 0) continue;
    for (const key of keys[query]) paid += votes[query] * map[query * n + key];
    total += votes[query] * rows[query];
  }
  return total > 0 ? paid / total : Number.NaN;
}

/** Share that uniform attention would pay to a place. */
function uniformShare({ keys, votes }: Places, visible: (query: number) => number): number {
  let [sum, total] = [0, 0];
  votes.forEach((vote, query) => {
    sum += (vote * keys[query].length) / visible(query);
    total += vote;
  });
  return total > 0 ? sum / total : 0;
}

/** Mean of exp(entropy) of a row over its visible keys, and the number of such rows. */
function breadth(entropies: Float64Array, visible: (query: number) => number, total: number) {
  let [sum, queries] = [0, 0];
  entropies.forEach((entropy, query) => {
    if (visible(query) < MIN.keys) return;
    sum += Math.exp(entropy) / visible(query);
    queries++;
  });
  return { share: queries > 0 && total > 0 ? sum / queries : 0, queries };
}

/** Apply the one rule for roles. */
function chooseRole(
  shares: ReadonlyMap<RoleId, number>,
  places: ReadonlyMap<RoleId, Places>,
  uniform: ReadonlyMap<RoleId, number>,
  broad: { share: number; queries: number },
): RolePart {
  let best: RolePart = { role: null, share: null, queries: 0 };
  let most = -1;
  const queriesOf = (role: RoleId) => places.get(role)!.votes.filter((vote) => vote > 0).length;
  const holds = (role: RoleId) =>
    (shares.get(role) || 0) >=
      Math.max(
        role === "induction" ? MIN.induction : MIN.share,
        MIN.uniform * (uniform.get(role) ?? 0),
      ) && queriesOf(role) >= MIN.queries;
  for (const role of NAMES) {
    if (role === "broad" || !places.has(role) || !holds(role)) continue;
    // The first token is named before the special tokens, one of which it may be.
    if (role === "special_token" && holds("first_token")) continue;
    const share = shares.get(role)!;
    if (share > most) [most, best] = [share, { role, share, queries: queriesOf(role) }];
  }
  const isBroad = best.role === null && broad.share >= MIN.broad && broad.queries >= MIN.queries;
  if (isBroad) best = { role: "broad", ...broad };
  return { ...best, share: best.share === null ? null : rounded(best.share) };
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

/** Python's `casefold`, so far as equality of texts goes. */
function foldCase(text: string): string {
  return [...text.toUpperCase()].map((c) => c.toLowerCase()).join("");
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
