import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import type { LivePart, RolePart, TokensPart, TracePart } from "../generated/payload.ts";
import {
  bufferReader,
  bytesOfBase64,
  FloatNumbers,
  FloatPlanes,
  maximaOf,
  TopPlanes,
} from "../src/data/decode.ts";
import { HeadNumbers, isPunctuation } from "../src/data/head_numbers.ts";
import { readSource, sha256 } from "../src/data/live_files.ts";
import {
  liveTrace,
  logProbabilities,
  pooled,
  predictedRows,
  predictionEffects,
  topOf,
  vectorEffects,
} from "../src/data/live_trace.ts";
import { splitWords, Tokenizer, type TokenizerFile } from "../src/data/tokenizer.ts";
import { openTraces } from "../src/data/trace.ts";
import { golden as stored } from "./golden.ts";

interface Golden {
  cases: {
    traces: TracePart[];
    buffers: string[];
    roles: RolePart[][];
  }[];
  words: { text: string; words: string[] }[];
}

const file = new URL("../../tests/page/golden/live.json", import.meta.url);
const golden = JSON.parse(readFileSync(file, "utf-8")) as Golden;

const casesOf = () =>
  Promise.all(
    golden.cases.map(async ({ traces, buffers, roles }) => {
      const read = bufferReader((index) => bytesOfBase64(buffers[index]));
      const [{ blocks }] = await openTraces({ traces }, read);
      return { block: blocks[0], roles, tokens: traces[0].stacks.self };
    }),
  );

test("roles are those of Python", async () => {
  const seen = new Set<string | null>();
  for (const { block, roles } of await casesOf()) {
    const plain = (part: RolePart) => [part.role, part.queries];
    const found = block.roles.heads.flat();
    expect(found.map(plain)).toEqual(roles.flat().map(plain));
    roles.flat().forEach(({ role, share }, i) => {
      seen.add(role);
      if (share !== null) expect(Math.abs(found[i].share! - share)).toBeLessThan(2e-3);
    });
  }
  expect(seen.size).toBe(10); // all nine roles, and none
});

const tokensOf = (tokens: string[], part: Partial<TokensPart>): TokensPart => ({
  tokens,
  special: tokens.map(() => 0),
  segments: tokens.map(() => 0),
  generated: tokens.map(() => 0),
  words: tokens.map((_, i) => i),
  word_texts: tokens,
  ...part,
});

test("statistics by hand", () => {
  const tokens = tokensOf(["[CLS]", "a", "b"], { special: [1, 0, 0], segments: [0, 0, 1] });
  const numbers = new HeadNumbers({ name: "self", causal: false, queries: tokens, keys: tokens });
  const previous = [1, 0, 0, 1, 0, 0, 0, 1, 0];
  const weights = Float32Array.of(...previous, ...new Array(9).fill(1 / 3));
  const planes = new FloatPlanes(3, weights);
  expect(numbers.layer(0, planes, 2, null).statistics).toEqual({
    entropy: [0, 1.0986],
    first: [0.6667, 0.3333],
    special: [0.6667, 0.3333],
    distance: [0.6667, 0.8889],
    previous: [0.6667, 0.2222],
    same: [0.3333, 0.3333],
    next: [0, 0.2222],
    between: [0.3333, 0.4444],
  });
  // Codes that lost a tenth of the attention give the same.
  const lossy = new FloatPlanes(
    3,
    weights.map((weight) => 0.9 * weight),
  );
  const { statistics } = numbers.layer(0, lossy, 2, () => 1);
  expect([statistics.entropy, statistics.first]).toEqual([
    [0, 1.0986],
    [0.6667, 0.3333],
  ]);
  const plain = tokensOf(["a", "b", "c"], {});
  const cross = new HeadNumbers({ name: "cross", causal: false, queries: plain, keys: plain });
  const missing = new FloatPlanes(3, new Float32Array(9).fill(Number.NaN));
  const none = cross.layer(0, missing, 1, null);
  expect(none.statistics).toEqual({ entropy: [null], first: [null] });
  expect(none.roles).toEqual([{ role: null, share: null, queries: 0 }]);
});

test("thumbnails show the largest weight of a cell", () => {
  const weights = new Float32Array(50 * 50);
  weights[4 * 50 + 2] = 0.5; // Cells start at 0, 2, 4, 6, …
  weights[5 * 50 + 3] = 0.25;
  weights[49 * 50 + 49] = 1;
  const cells = maximaOf(weights, 50, 50, 24);
  const found = [...cells].flatMap((weight, i) => (weight ? [[i, weight]] : []));
  expect(found).toEqual([
    [2 * 24 + 1, 0.5],
    [24 * 24 - 1, 1],
  ]);
});

test("rows of a few keys are 0 elsewhere", () => {
  // Two heads of two queries on 300 keys; the second head is missing.
  const codes = Uint8Array.of(0, 254, 127, 254, 255, 255, 255, 255);
  const steps = Uint8Array.of(0, 0, 44, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0);
  const planes = new TopPlanes([2, 2, 300], 2, codes, steps);
  const row = planes.row(0, 1);
  expect([row[299], row[45]]).toEqual([0, 0]);
  expect([planes.row(0, 0)[0], row[44]]).toEqual([1, 0]);
  expect(planes.row(1, 0).every(Number.isNaN)).toBe(true);
  expect(planes.maxima(0, 24)[0]).toBe(1);
  expect(planes.weights(0).subarray(300)).toEqual(row);
});

test("words are those of Python", () => {
  for (const { text, words } of golden.words) {
    expect(splitWords(text).map(([start, end]) => text.slice(start, end))).toEqual(words);
  }
  expect([",", "##.", "▁…", "##", "a.", "", " — "].map(isPunctuation)).toEqual([
    true,
    true,
    true,
    true,
    false,
    false,
    true,
  ]);
});

const WORD_PIECE: TokenizerFile = {
  json: {
    model: {
      vocab: { "[UNK]": 0, "[CLS]": 1, "[SEP]": 2, un: 3, "##seen": 4, "!": 5, 中: 6, "##e": 7 },
      unk_token: "[UNK]",
      continuing_subword_prefix: "##",
      max_input_chars_per_word: 8,
    },
    added_tokens: [{ id: 8, content: "[MASK]" }],
  },
  tables: {
    kind: "bert",
    removed: [[0x300, 0x36f]],
    spaced: [[0x4e00, 0x9fff]],
    punct: [[33, 33]],
    space: [[32, 32]],
    map: { 85: "u", 78: "n", 233: "e" },
  },
  spelling: { kind: "plain", special: ["[CLS]"] },
  prefix: [1],
  suffix: [2],
  vectors: [["UNseen!", [1, 3, 4, 5, 2]]],
};

test("word pieces have places in the text", () => {
  const tokenizer = new Tokenizer(WORD_PIECE);
  expect(tokenizer.failures).toBe(0);
  const { ids, tokens } = tokenizer.read("UNé中 [MASK]unseenunseen!");
  expect(ids).toEqual([1, 3, 7, 6, 8, 0, 5, 2]);
  expect(tokens.tokens).toEqual(["[CLS]", "un", "##e", "中", "[MASK]", "[UNK]", "!", "[SEP]"]);
  expect(tokens.special).toEqual([1, 0, 0, 0, 0, 0, 0, 1]);
  // A token over several words belongs to that with most characters: MASK of “[MASK]”.
  expect(tokens.words).toEqual([-1, 0, 0, 1, 3, 5, 6, -1]);
  expect(tokens.word_texts).toEqual(["UNé", "中", "[", "MASK", "]", "unseenunseen", "!"]);
});

test("bytes are merged by rank and spelled as characters", () => {
  const letters = Object.fromEntries([..."aberĠéÃ©1"].map((sign, i) => [sign, i]));
  const tokenizer = new Tokenizer({
    json: {
      model: {
        vocab: { ...letters, Ġa: 20, Ġab: 21, "Ã©": 22 },
        merges: ["Ġ a", ["Ġa", "b"], "Ã ©"],
      },
      added_tokens: [],
    },
    tables: {
      kind: "byte",
      prefix_space: false,
      L: [
        [65, 90],
        [97, 122],
        [233, 233],
      ],
      N: [[48, 57]],
      S: [[32, 32]],
      D: [[48, 57]],
    },
    spelling: { kind: "bytes", special: [] },
    prefix: [],
    suffix: [],
    vectors: [["ab ab", [0, 1, 20]]],
  });
  expect(tokenizer.failures).toBe(1);
  const { ids, tokens } = tokenizer.read("ab abé11 z");
  expect(tokens.tokens).toEqual(["a", "b", " ab", "é", "1", "1", " "]);
  expect(ids.slice(2, 4)).toEqual([21, 22]);
  expect(tokenizer.encode("ab abé").offsets).toEqual([
    [0, 1],
    [1, 2],
    [2, 5],
    [5, 6],
  ]);
  expect(tokenizer.spell(6)).toBe("<0xC3>");
  expect(tokenizer.spell(99)).toBe("<99>");
});

const LIVE: LivePart = {
  model: "tiny",
  kind: "next",
  labels: [],
  exclusive: true,
  pooling: "mean",
  blocks: [
    {
      name: "self",
      prefix: "",
      layers: [0, 1],
      heads: 6,
      groups: null,
      scales: [0.5, 0.5],
      causal: false,
      vectors: [],
    },
  ],
  has_types: false,
  max_tokens: 64,
  bytes: 0,
  memory: 0,
  storage: "",
  files: [],
  wasm: { name: "", bytes: 0, sha256: "", source: "element" },
  worker: { name: "", bytes: 0, sha256: "", source: "element" },
  tokenizer: { name: "", bytes: 0, sha256: "", source: "element" },
  tokenizer_refusal: null,
  mask_token: 7,
  texts: [],
  inputs: [],
  proof: { maps: 0, output: 0, storage_maps: 0, storage_output: 0, cases: [] },
};

test("a live trace has what a stored one has", async () => {
  const [{ block, tokens: part }] = await casesOf();
  const ids = part.tokens.map((_, i) => i);
  const tokens = ids.length;
  const weights = Float32Array.from(
    block.planes.flatMap((lazy) =>
      [...new Array(6).keys()].flatMap((h) => [...lazy.value!.weights(h)]),
    ),
  );
  const logits = Float32Array.from({ length: tokens * 4 }, (_, i) => (i % 4) * Math.log(2));
  const outputs = {
    attention: { data: weights, dims: [1, 2, 6, tokens, tokens] },
    output: { data: logits, dims: [1, tokens, 4] },
  };
  const feeds = [{ name: "input_ids", dims: [tokens], ids, values: null }];
  const media = { pictures: [], sound: null };
  const input = { title: "t", feeds, stacks: { self: part }, media };
  const trace = liveTrace(LIVE, stored.header.traces[0], input, outputs, (id) => `t${id}`);
  const { planes, queryTokens } = trace.blocks[0];
  expect(queryTokens.wordTexts[1]).toBe("The");
  const plane = planes[1].value!;
  expect(plane.row(2, 3)[1]).toBe(weights[((6 + 2) * tokens + 3) * tokens + 1]);
  expect(plane.weights(2)[3 * tokens + 1]).toBe(plane.row(2, 3)[1]);
  const [first] = trace.predictions!.positions;
  expect(first).toEqual({
    position: 0,
    top: [8, 4, 2, 1].map((part, i) => ({
      text: `t${3 - i}`,
      probability: Number((part / 15).toPrecision(5)),
    })),
  });
  expect(predictedRows({ ...LIVE, kind: "mask" }, [1, 7, 2, 7])).toEqual([1, 3]);
  expect(predictedRows(LIVE, new Array(70).fill(0))).toHaveLength(64);
});

test("numbers by hand", () => {
  expect(topOf(Float32Array.of(1, 5, 3, 5, 2), 3)).toEqual([1, 3, 2]);
  const half = logProbabilities(Float32Array.of(0, 0), true);
  expect(half[0]).toBeCloseTo(Math.log(0.5), 6);
  expect(logProbabilities(Float32Array.of(0, 3), false)[0]).toBeCloseTo(Math.log(0.5), 6);
  const hidden = { data: Float32Array.of(1, 2, 3, 4, 0, 0, 2, 2), dims: [2, 2, 2] };
  expect([...pooled(hidden, 0, "mean")]).toEqual([2, 3]);
  expect([...pooled(hidden, 1, "first")]).toEqual([0, 0]);
  const before = Float64Array.of(1, 0);
  const after = [[Float64Array.of(0, 2), undefined]];
  const turned = vectorEffects({ before, after }, "mean", { before, after });
  if (turned.kind !== "cosine_distance") throw new Error();
  expect([turned.distance(0, 0), turned.distance(0, 1)]).toEqual([1, Number.NaN]);
  expect([turned.similarity!.before, turned.similarity!.after(0, 0)]).toEqual([1, 1]);
  const effects = predictionEffects({ before: Float64Array.of(0), after }, 3, ["a"]);
  if (effects.kind !== "prediction") throw new Error();
  expect([effects.without(0, 0, 0), effects.without(0, 1, 0)]).toEqual([1, Number.NaN]);
  expect([...new FloatNumbers([2, 2], Float32Array.of(1, 2, 3, 4)).vector(1)]).toEqual([3, 4]);
  expect(new FloatPlanes(2, Float32Array.of(1, 2, 3, 4)).row(0, 1)[0]).toBe(3);
  const wide = new FloatPlanes(
    3,
    Float32Array.from({ length: 12 }, (_, i) => i),
    2,
  );
  expect([wide.row(1, 1)[0], wide.weights(1)[0], wide.weights(1).length]).toEqual([9, 6, 6]);
});

test("files are checked by their hashes", async () => {
  for (const length of [0, 1, 55, 56, 63, 64, 65, 1000]) {
    const bytes = Uint8Array.from({ length }, (_, i) => i * 7);
    const known = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    expect(sha256(bytes)).toEqual(known);
  }
  const bytes = new TextEncoder().encode("model");
  const digest = [...sha256(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const part = { name: "part", bytes: 5, sha256: digest, source: "element" as const };
  const source = { file: part, url: "", text: btoa("model") };
  expect(await readSource(source)).toEqual(bytes);
  await expect(readSource({ ...source, text: btoa("medal") })).rejects.toThrow("part is damaged");
});
