// Tokenizer of a live page: WordPiece and byte BPE, by tables that the Rust tokenizer answered for
// every code point. Offsets are UTF-16 units of the text.

import type { TokensPart } from "../../generated/payload.ts";

type Range = readonly [first: number, last: number];

interface AddedToken {
  readonly id: number;
  readonly content: string;
}

interface BertTables {
  readonly kind: "bert";
  readonly removed: readonly Range[];
  /** Characters that become words of their own: Chinese. */
  readonly spaced: readonly Range[];
  readonly punct: readonly Range[];
  readonly space: readonly Range[];
  /** Other characters that the normalizer changes. */
  readonly map: Readonly<Record<string, string>>;
  /** Whether Hangul is decomposed. */
  readonly hangul?: boolean;
}

interface ByteTables {
  readonly kind: "byte";
  readonly prefix_space: boolean;
  /** Letters, numbers, spaces; digits that stand alone. */
  readonly L: readonly Range[];
  readonly N: readonly Range[];
  readonly S: readonly Range[];
  readonly D: readonly Range[];
}

/** Tokenizer as the page carries it. */
export interface TokenizerFile {
  readonly json: {
    readonly model: {
      readonly vocab: Readonly<Record<string, number>>;
      readonly merges?: readonly (string | readonly [string, string])[];
      readonly unk_token?: string | null;
      readonly continuing_subword_prefix?: string | null;
      readonly max_input_chars_per_word?: number;
    };
    readonly added_tokens: readonly AddedToken[];
  };
  readonly tables: BertTables | ByteTables;
  readonly spelling: { readonly kind: "bytes" | "plain"; readonly special: readonly string[] };
  /** Ids before and after those of the text. */
  readonly prefix: readonly number[];
  readonly suffix: readonly number[];
  readonly vectors: readonly (readonly [text: string, ids: readonly number[]])[];
}

/** Token as the vocabulary spells it, with its place in the text. */
type Piece = readonly [token: string, start: number, end: number];

type ReadPieces = (text: string, from: number) => Piece[];

export interface Encoded {
  readonly ids: number[];
  readonly offsets: (readonly [start: number, end: number])[];
  /** Number of ids before and after those of the text. */
  readonly added: readonly [before: number, after: number];
}

export class Tokenizer {
  private readonly ids: Map<string, number>;
  private readonly names = new Map<number, string>();
  private readonly added: RegExp | null;
  private readonly pieces: ReadPieces;
  private readonly special: ReadonlySet<string>;

  constructor(private readonly file: TokenizerFile) {
    const { model, added_tokens: added } = file.json;
    this.ids = new Map(Object.entries(model.vocab));
    const { tables } = file;
    this.pieces = tables.kind === "bert" ? wordPieces(file, tables) : bytePieces(file, tables);
    for (const { content, id } of added) this.ids.set(content, id);
    for (const [token, id] of this.ids) this.names.set(id, token);
    this.special = new Set(file.spelling.special);
    const longest = [...added].sort((a, b) => b.content.length - a.content.length);
    const pattern = longest.map(({ content }) => escaped(content)).join("|");
    this.added = pattern ? new RegExp(pattern, "gu") : null;
  }

  encode(text: string): Encoded {
    const { prefix, suffix } = this.file;
    const pieces: Piece[] = [];
    let start = 0;
    for (const match of this.added ? text.matchAll(this.added) : []) {
      if (match.index > start) pieces.push(...this.pieces(text.slice(start, match.index), start));
      start = match.index + match[0].length;
      pieces.push([match[0], match.index, start]);
    }
    if (start < text.length) pieces.push(...this.pieces(text.slice(start), start));
    const nowhere = [0, 0] as const;
    return {
      ids: [...prefix, ...pieces.map(([token]) => this.ids.get(token)!), ...suffix],
      offsets: [
        ...prefix.map(() => nowhere),
        ...pieces.map(([, from, to]) => [from, to] as const),
        ...suffix.map(() => nowhere),
      ],
      added: [prefix.length, suffix.length],
    };
  }

  /** Ids of a text, and its tokens as a page shows them. */
  read(text: string): { ids: number[]; tokens: TokensPart } {
    const { ids, offsets, added } = this.encode(text);
    const isAdded = (i: number) => i < added[0] || i >= ids.length - added[1];
    const spans = splitWords(text);
    const tokens = {
      tokens: ids.map((id) => this.spell(id)),
      special: ids.map((_, i) => Number(isAdded(i))),
      segments: ids.map(() => 0),
      generated: ids.map(() => 0),
      words: offsets.map((span, i) => (isAdded(i) ? -1 : wordOf(text, span, spans))),
      word_texts: spans.map(([start, end]) => text.slice(start, end)),
    };
    return { ids, tokens };
  }

  /** Readable form of a token: bytes decoded, those of an incomplete character as <0xE2>. */
  spell(id: number): string {
    const name = this.names.get(id) ?? `<${id}>`;
    if (this.file.spelling.kind === "plain" || this.special.has(name)) return name;
    const bytes = [...name].map((character) => BYTE_OF.get(character));
    if (bytes.some((byte) => byte === undefined)) return name; // an added token in plain text
    const raw = Uint8Array.from(bytes as number[]);
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(raw);
    } catch {
      const shown = (byte: number) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
      return [...raw].map((b) => (b < 0x80 ? String.fromCharCode(b) : shown(b))).join("");
    }
  }

  /** Number of the file's vectors that are read differently. */
  get failures(): number {
    return this.file.vectors.filter(([text, ids]) => `${this.encode(text).ids}` !== `${ids}`)
      .length;
  }
}

/** Words of BERT's tokenizer, cut into the longest pieces of the vocabulary. */
function wordPieces({ json }: TokenizerFile, tables: BertTables): ReadPieces {
  const { vocab } = json.model;
  const { unk_token: unknown, continuing_subword_prefix: mark } = json.model;
  const longest = json.model.max_input_chars_per_word ?? 100;
  const [isRemoved, isSpaced] = [isWithin(tables.removed), isWithin(tables.spaced)];
  const [isStop, isSpace] = [isWithin(tables.punct), isWithin(tables.space)];
  const changed = new Map(Object.entries(tables.map).map(([code, to]) => [Number(code), to]));
  const normal = (character: string): string => {
    const code = character.codePointAt(0)!;
    const to = changed.get(code);
    if (to !== undefined) return to;
    if (isRemoved(code)) return "";
    if (isSpaced(code)) return ` ${character} `;
    const isHangul = code >= 0xac00 && code <= 0xd7a3 && tables.hangul !== false;
    return isHangul ? character.normalize("NFD") : character;
  };
  const cut = (word: readonly Piece[]): Piece[] => {
    const whole: Piece = [unknown ?? "[UNK]", word[0][1], word[word.length - 1][2]];
    if (word.length > longest) return [whole];
    const pieces: Piece[] = [];
    for (let start = 0; start < word.length; ) {
      let end = word.length;
      let token = "";
      for (; end > start; end--) {
        const letters = word.slice(start, end).map(([letter]) => letter);
        token = (start > 0 ? (mark ?? "") : "") + letters.join("");
        if (Object.hasOwn(vocab, token)) break;
      }
      if (end === start) return [whole];
      pieces.push([token, word[start][1], word[end - 1][2]]);
      start = end;
    }
    return pieces;
  };
  return (text, from) => {
    const words: Piece[][] = [[]];
    let place = from;
    for (const character of text) {
      const next = place + character.length;
      for (const letter of normal(character)) {
        const code = letter.codePointAt(0)!;
        if (isSpace(code)) words.push([]);
        else if (isStop(code)) words.push([[letter, place, next]], []);
        else words[words.length - 1].push([letter, place, next]);
      }
      place = next;
    }
    return words.filter((word) => word.length > 0).flatMap(cut);
  };
}

/** Bytes as GPT-2 writes them: printable ones as they are, others from U+0100 on. */
const BYTES = (() => {
  const isPrintable = (b: number) => (b > 32 && b < 127) || (b > 160 && b < 256 && b !== 173);
  let next = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCharCode(isPrintable(b) ? b : next++));
})();
const BYTE_OF: ReadonlyMap<string, number> = new Map(BYTES.map((sign, byte) => [sign, byte]));
const CACHED = 20_000;

/** Words of GPT-2's pattern as bytes, merged by rank. */
function bytePieces({ json }: TokenizerFile, tables: ByteTables): ReadPieces {
  const { vocab, merges = [] } = json.model;
  const [L, N, S] = [tables.L, tables.N, tables.S].map(classOf);
  const pattern = new RegExp(
    `'s|'t|'re|'ve|'m|'ll|'d| ?[${L}]+| ?[${N}]+| ?[^${S}${L}${N}]+|[${S}]+(?![^${S}])|[${S}]+`,
    "gu",
  );
  const isDigit = isWithin(tables.D);
  const ranks = new Map(
    merges.map((pair, rank) => [typeof pair === "string" ? pair : pair.join(" "), rank]),
  );
  const encoder = new TextEncoder();
  const cache = new Map<string, string[]>();
  const merge = (word: string): string[] => {
    const known = cache.get(word);
    if (known) return known;
    let parts = [...word];
    while (parts.length > 1) {
      let best = Number.POSITIVE_INFINITY;
      let at = -1;
      for (let i = 0; i + 1 < parts.length; i++) {
        const rank = ranks.get(`${parts[i]} ${parts[i + 1]}`) ?? Number.POSITIVE_INFINITY;
        if (rank < best) [best, at] = [rank, i];
      }
      if (at < 0) break;
      const [a, b] = [parts[at], parts[at + 1]];
      const merged: string[] = [];
      for (let i = 0; i < parts.length; i++) {
        const isPair = parts[i] === a && parts[i + 1] === b;
        merged.push(isPair ? a + b : parts[i]);
        if (isPair) i++;
      }
      parts = merged;
    }
    if (cache.size > CACHED) cache.clear();
    cache.set(word, parts);
    return parts;
  };
  const ofWord = (word: string, from: number): Piece[] => {
    const owners: Range[] = [];
    let signs = "";
    let place = from;
    for (const character of word) {
      for (const byte of encoder.encode(character)) {
        // A byte that the vocabulary lacks is dropped.
        if (!Object.hasOwn(vocab, BYTES[byte])) continue;
        signs += BYTES[byte];
        owners.push([place, place + character.length]);
      }
      place += character.length;
    }
    let start = 0;
    return merge(signs).map((token) => {
      const first = start;
      start += token.length;
      return [token, owners[first][0], owners[start - 1][1]];
    });
  };
  return (text, from) => {
    const isPadded = tables.prefix_space && from === 0 && !/^\s/u.test(text);
    const padded = isPadded ? ` ${text}` : text;
    const start = from - Number(isPadded);
    const pieces: Piece[] = [];
    for (const [at, part] of cutDigits(padded, isDigit)) {
      for (const match of part.matchAll(pattern)) {
        pieces.push(...ofWord(match[0], start + at + match.index));
      }
    }
    return isPadded ? pieces.map(([t, a, b]) => [t, Math.max(0, a), Math.max(0, b)]) : pieces;
  };
}

/** Cut a text so that each digit stands alone. */
function cutDigits(text: string, isDigit: (code: number) => boolean): [at: number, part: string][] {
  const parts: [number, string][] = [];
  let [start, place] = [0, 0];
  for (const character of text) {
    const next = place + character.length;
    if (isDigit(character.codePointAt(0)!)) {
      if (place > start) parts.push([start, text.slice(start, place)]);
      parts.push([place, character]);
      start = next;
    }
    place = next;
  }
  if (place > start) parts.push([start, text.slice(start)]);
  return parts;
}

function isWithin(ranges: readonly Range[]): (code: number) => boolean {
  return (code) => {
    let [low, high] = [0, ranges.length - 1];
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (code < ranges[middle][0]) high = middle - 1;
      else if (code > ranges[middle][1]) low = middle + 1;
      else return true;
    }
    return false;
  };
}

/** Ranges as the inside of a character class. */
function classOf(ranges: readonly Range[]): string {
  const sign = (code: number) => `\\u{${code.toString(16)}}`;
  return ranges.map(([first, last]) => `${sign(first)}-${sign(last)}`).join("");
}

function escaped(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");
}

const SINGLE = "[\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}]";
const RUN = `[[\\p{L}\\p{M}\\p{N}]--${SINGLE}]`;
const WORD = new RegExp(
  `${SINGLE}\\p{M}*` +
    `|(?:${RUN}+(?:['’ʼ\\-‐‑·\\u{ad}\\u{200c}\\u{200d}](?=${RUN})|(?<=\\p{N})[.,](?=\\p{N}))?)+` +
    "|\\p{Regional_Indicator}{2}" +
    "|[^\\s\\p{Cc}\\p{Cf}](?:\\p{M}|\\p{Emoji_Modifier}|\\u{200d}\\p{Extended_Pictographic})*",
  "gv",
);

/** Spans of the words of a text, as Python's `split_words` finds them. */
export function splitWords(text: string): Range[] {
  return [...text.matchAll(WORD)].map((match) => [match.index, match.index + match[0].length]);
}

/** Number of the word that shares most characters with a token, or -1. */
function wordOf(text: string, [start, end]: Range, spans: readonly Range[]): number {
  let [low, high] = [0, spans.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[middle][1] <= start) low = middle + 1;
    else high = middle;
  }
  let [most, word] = [0, -1];
  for (let i = low; i < spans.length && spans[i][0] < end; i++) {
    const common = text.slice(Math.max(spans[i][0], start), Math.min(spans[i][1], end));
    const shared = [...common].length;
    if (shared > most) [most, word] = [shared, i];
  }
  return word;
}
