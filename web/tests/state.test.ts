import { expect, test } from "vitest";
import { formatFragment, parseFragment } from "../src/state/fragment.ts";
import { defaultSelection, fitSelection } from "../src/state/selection.ts";
import { Store } from "../src/state/store.ts";
import { goldenTraces } from "./golden.ts";

const traces = await goldenTraces();
const base = fitSelection(defaultSelection(traces), traces);

test("a fragment holds what differs, and gives it back", () => {
  expect(formatFragment(base, base)).toBe("");
  const changed = {
    ...base,
    layer: 1,
    heads: [0],
    queries: [2, 1],
    pair: "ab",
    threshold: 0.15,
    specials: false,
    color: "entropy",
  } as const;
  const fragment = formatFragment(changed, base);
  expect(fragment).toBe("layer=1&queries=2,1&pair=ab&threshold=0.15&specials=0&color=entropy");
  expect(parseFragment(`#${fragment}`, base)).toEqual(changed);
});

test("nonsense in a fragment changes nothing", () => {
  const odd = "view=x&layer=-3&heads=1,b&threshold=&top=NaN&__proto__=1&unknown=2";
  expect(parseFragment(odd, base)).toEqual(base);
  expect(parseFragment("threshold=7", base).threshold).toBe(1);
});

test("what the trace does not have is put right", () => {
  const wrong = { ...base, layer: 1, heads: [1, 5], queries: [9], sort: "beauty", block: "cross" };
  const fitted = fitSelection(wrong, traces);
  expect(fitted).toMatchObject({ layer: 1, heads: [0], queries: [], sort: "", block: "self" });
});

test("listeners hear of changes, and of a hover once", () => {
  const store = new Store(base, (selection) => fitSelection(selection, traces));
  const heard: number[] = [];
  store.onSelection((now) => heard.push(now.layer));
  let hovers = 0;
  store.onHover(() => hovers++);
  store.update({ layer: 1 });
  store.point({ query: 1 });
  store.point({ query: 1 });
  expect(heard).toEqual([1]);
  expect(hovers).toBe(1);
});
