import { signal } from "@preact/signals";
import { expect, test } from "vitest";
import { type Backend, EVERYTHING, NOTHING } from "../src/data/backend.ts";
import type { EffectTable } from "../src/data/effects.ts";
import { NO_FILTER } from "../src/data/filtered_block.ts";
import {
  defaultSelection,
  fitSelection,
  formatFragment,
  MAX_HEADS,
  parseFragment,
  type Selection,
} from "../src/state/selection.ts";
import { Session } from "../src/state/session.ts";
import { formatRequest, parseRequest } from "../src/state/trace_request.ts";
import { matchesOf } from "../src/view/search.tsx";
import { golden, goldenSession, goldenTraces } from "./golden.ts";

const traces = await goldenTraces();
const base = fitSelection(defaultSelection(traces[0]), traces[0]);

test("a fragment holds what differs, and gives it back", () => {
  expect(formatFragment(base, base)).toBe("head=L0H0");
  const changed: Selection = {
    ...base,
    layer: 1,
    head: 0,
    word: 2,
    key: 1,
    also: [{ layer: 0, head: 1 }],
    mean: true,
    answers: true,
    exercise: 1,
    sorted: true,
    minus: true,
    named: "text",
    tab: "neurons",
    color: "spread",
    against: " John",
    edits: [
      { kind: "off", block: "self", layer: 1, head: 0 },
      { kind: "cell", block: "self", layer: 0, head: 1, query: 2, key: 1, weight: 0.25 },
      { kind: "neuron", block: "self", layer: 0, head: 1, neuron: 3, factor: 0.5 },
    ],
    story: 2,
    theme: "dark",
    filter: { ...NO_FILTER, specials: "hidden", above: 0.15 },
    embed: true,
  };
  const fragment = formatFragment(changed, base);
  expect(fragment).toBe(
    "head=L1H0&word=2&key=1&tab=neurons&color=spread&named=text&against=%20John&with=L0H1&mean=1&sort=1&minus=1" +
      "&off=L1H0&cell=L0H1.2.1.0.25" +
      "&neuron=L0H1.3x0.5&filter=specials:hidden,above:0.15&answers=1&story=2&ex=1&theme=dark&embed=1",
  );
  expect(parseFragment(`#${fragment}`, base)).toEqual(changed);
});

test("an edit names the block that it is in", () => {
  const off = { kind: "off", layer: 0, head: 1 } as const;
  const edits = [
    { ...off, block: "self" },
    { ...off, block: "cross" },
  ];
  const fragment = formatFragment({ ...base, block: "cross", edits }, base);
  expect(fragment).toBe(
    "head=L0H0&block=cross&off=L0H1,cross:L0H1".replace("L0H0", fragment.slice(5, 9)),
  );
  expect(parseFragment(fragment, base).edits).toEqual(edits);
});

test("an unpinned word is said where the page opens with one", () => {
  const opening = { ...base, word: 1 };
  const fragment = formatFragment({ ...opening, word: null }, opening);
  expect(parseFragment(fragment, opening).word).toBeNull();
});

test("nonsense in a fragment changes nothing", () => {
  const odd = "tab=x&head=H3&word=-3&color=blue&filter=above:x,top&__proto__=1&story=two&pane=";
  expect(parseFragment(odd, base)).toEqual(base);
  expect(parseFragment("filter=above:7", base).filter.above).toBe(1);
});

test("what the trace does not have is put right", () => {
  const wrong = { ...base, layer: 1, head: 1, word: 9, block: "cross" };
  const fitted = fitSelection(wrong, traces[0]);
  expect(fitted).toMatchObject({ layer: 1, head: 0, word: null, block: "self" });
});

test("a step of the story opens where it says, in its example", async () => {
  const session = await goldenSession();
  session.store.open(golden.header.story[1].selection, { story: 2 });
  expect(session.selection.value).toMatchObject({ example: 1, story: 2, tab: "matrix" });
  expect(session.sides.value.map(({ letter }) => letter)).toEqual(["A", "B"]);
});

test("hover comes before pins, and pins come back", async () => {
  const session = await goldenSession("word=1");
  const [side] = session.sides.value;
  expect(session.focus(side)).toEqual({ row: 1, column: -1 });
  session.point({ query: 2 });
  expect(session.focus(side)).toEqual({ row: 2, column: -1 });
  session.point({});
  expect(session.focus(side).row).toBe(1);
});

test("edits run the model, a newer one ends an older one, and undo goes back", async () => {
  const asked: { edits: number; signal: AbortSignal }[] = [];
  const backend = {
    can: signal(EVERYTHING),
    row: async () => null,
    edit: async (edits: readonly unknown[], signal: AbortSignal) => {
      asked.push({ edits: edits.length, signal });
      return traces;
    },
  } as unknown as Backend;
  const session = new Session(golden.header, traces, backend, "");
  session.edits.add({ kind: "off", block: "self", layer: 0, head: 0 });
  session.edits.add({ kind: "off", block: "self", layer: 0, head: 1 });
  expect(asked.map(({ edits }) => edits)).toEqual([1, 2]);
  expect(asked[0].signal.aborted).toBe(true);
  await Promise.resolve();
  expect(session.edits.isOff({ layer: 0, head: 1 })).toBe(true);
  session.update({ edits: session.selection.value.edits.slice(0, -1) });
  expect(session.edits.isOff({ layer: 0, head: 1 })).toBe(false);
  session.update({ edits: [] });
  expect(session.edits.traces.value).toBeNull();
});

test("other changes do not run the edited model again", async () => {
  let runs = 0;
  const backend = {
    can: signal(EVERYTHING),
    edit: async () => {
      runs++;
      return traces;
    },
  } as unknown as Backend;
  const session = new Session(golden.header, traces, backend, "off=L0H0");
  session.update({ head: 1 });
  session.update({ tab: "matrix" });
  expect(runs).toBe(1);
  await new Promise((done) => setTimeout(done));
  session.dispose();
  session.edits.add({ kind: "off", block: "self", layer: 0, head: 1 });
  expect(runs).toBe(1);
});

test("what was asked of the lab is in its address", () => {
  const request = {
    model: "smollm2",
    inputs: [
      { text: "a + b & c", generate: 3 },
      { text: "ü", pair: "二" },
    ],
  };
  expect(parseRequest(formatRequest(request), "x")).toEqual(request);
  expect(parseRequest("head=L0H0", "x")).toBeNull();
});

test("several heads are drawn over one another, averaged on request, and let go again", async () => {
  const session = await goldenSession();
  const [side] = session.sides.value;
  await Promise.all(side.block.planes.map((layer) => layer.whole()));
  const [first, other] = [0, 1].map((head) => session.matrix(side, { layer: 0, head })!.weights);
  session.update({ layer: 0, head: 0 });
  expect(session.combined(side)).toBeNull();
  session.store.toggleAlso({ layer: 0, head: 1 });
  expect(session.overlaid).toHaveLength(2);
  expect(session.matrix(side)!.weights[4]).toBe(first[4]);
  session.update({ mean: true });
  expect(session.overlaid).toBeNull();
  expect(session.combined(side)).toHaveLength(2);
  expect(session.matrix(side)!.weights[4]).toBeCloseTo((first[4] + other[4]) / 2, 5);
  session.store.toggleAlso({ layer: 0, head: 1 });
  expect(session.matrix(side)!.weights[4]).toBe(first[4]);
  session.store.toggleAlso({ layer: 0, head: 1 });
  session.store.toggleAlso({ layer: 0, head: 0 });
  expect(session.selection.value).toMatchObject({ head: 1, also: [] });
  const many = Array.from({ length: 9 }, () => ({ layer: 0, head: 1 }));
  session.update({ also: many });
  expect(session.selection.value.also.length).toBe(MAX_HEADS - 1);
});

test("a head, a role and a word are found by their names", async () => {
  const session = await goldenSession();
  expect(matchesOf(session, "l0 h1")[0].label).toBe("L0 H1");
  expect(matchesOf(session, "0.1")[0].label).toBe("L0 H1");
  expect(matchesOf(session, "L9H9")).toEqual([]);
  expect(matchesOf(session, "previous").map(({ about }) => about)).toContain("role");
  const { label, positions } = session.lead.value.filtered.rows[1];
  const match = matchesOf(session, label.trim()).find(({ about }) => about.startsWith("token"))!;
  match.choose();
  expect(session.selection.value.word).toBe(positions[0]);
});

test("an edit that fails is taken back, and what was on before stays", async () => {
  let fails = false;
  const backend = {
    can: signal(EVERYTHING),
    edit: async () => {
      if (fails) throw new Error("the model is busy");
      return traces;
    },
  } as unknown as Backend;
  const session = new Session(golden.header, traces, backend, "");
  session.edits.add({ kind: "off", block: "self", layer: 0, head: 0 });
  await new Promise((done) => setTimeout(done));
  fails = true;
  session.edits.add({ kind: "off", block: "self", layer: 0, head: 1 });
  expect(session.edits.isOff({ layer: 0, head: 1 })).toBe(true);
  await new Promise((done) => setTimeout(done));
  expect(session.edits.isOff({ layer: 0, head: 0 })).toBe(true);
  expect(session.edits.isOff({ layer: 0, head: 1 })).toBe(false);
  expect(session.requests.error.value).toContain("the model is busy");
});

test("an answer that comes after its edit was undone is not shown", async () => {
  const answers: ((found: typeof traces) => void)[] = [];
  const backend = {
    can: signal(EVERYTHING),
    // The reply had arrived when it was aborted: its reading goes on.
    edit: () => new Promise((done) => answers.push(done)),
    effects: async () => {
      await new Promise((done) => setTimeout(done));
      return { kind: "prediction" } as EffectTable;
    },
  } as unknown as Backend;
  const session = new Session(golden.header, traces, backend, "");
  session.edits.add({ kind: "off", block: "self", layer: 0, head: 0 });
  session.update({ edits: [] });
  answers[0]?.(traces);
  session.measure(session.lead.value, null);
  session.requests.stop();
  await new Promise((done) => setTimeout(done, 5));
  expect(session.edits.traces.value).toBeNull();
  expect(session.requests.effects.value.get("0/self")).toBeUndefined();
  expect(session.requests.error.value).toBe("");
});

test("a model that is ready later runs the edits of the address", async () => {
  const can = signal(NOTHING);
  let runs = 0;
  const backend = {
    can,
    edit: async () => {
      runs++;
      return traces;
    },
  } as unknown as Backend;
  const session = new Session(golden.header, traces, backend, "off=L0H0");
  expect([runs, session.edits.onlyOff]).toEqual([
    0,
    { kind: "off", block: "self", layer: 0, head: 0 },
  ]);
  can.value = { ...NOTHING, off: true };
  await new Promise((done) => setTimeout(done));
  expect([runs, session.edits.traces.value]).toEqual([1, traces]);
  session.dispose();
});

test("a measurement that is stopped keeps what it has", async () => {
  const table = { kind: "prediction" } as EffectTable;
  let first = -1;
  const backend = {
    can: signal(EVERYTHING),
    effects: async (...given: Parameters<Backend["effects"]>) => {
      const [, , , follow, ending, layer] = given;
      first = layer;
      follow({ done: 1, total: 4 }, table);
      await new Promise((done) => setTimeout(done));
      ending.throwIfAborted();
      return { kind: "cosine_distance" } as EffectTable;
    },
  } as unknown as Backend;
  const session = new Session(golden.header, traces, backend, "head=L1H0");
  const { requests } = session;
  session.measure(session.lead.value, null);
  expect(requests.progress.value).toEqual({ done: 1, total: 4 });
  requests.stop();
  await new Promise((done) => setTimeout(done, 5));
  expect([first, requests.effects.value.get("0/self"), requests.progress.value]).toEqual([
    1,
    table,
    null,
  ]);
  expect(requests.error.value).toBe("");
});
