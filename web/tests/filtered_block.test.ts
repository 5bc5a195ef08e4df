import { expect, test } from "vitest";
import { type Filter, FilteredBlock, meanOf, NO_FILTER } from "../src/data/filtered_block.ts";
import { formatNumber, formatWeight, ordinal, points } from "../src/data/format.ts";
import { strongestLink, summary, titleOf } from "../src/data/head_summary.ts";
import { neuronOrder, neuronsOf } from "../src/data/neurons.ts";
import { printed } from "../src/data/tokens.ts";
import { workedSum } from "../src/layout/neurons_layout.ts";
import { goldenTraces } from "./golden.ts";

const [block] = (await goldenTraces())[0].blocks;
await Promise.all(block.planes.map((lazy) => lazy.whole()));
const close = (weights: Float32Array, expected: number[]) =>
  expected.forEach((value, i) => {
    if (Number.isNaN(value)) expect(weights[i]).toBeNaN();
    else expect(weights[i]).toBeCloseTo(value, 2);
  });
const filteredBy = (changes: Partial<Filter>) =>
  new FilteredBlock(block, { ...NO_FILTER, ...changes });

test("words: attention to is summed, from is averaged", () => {
  const { rows, columns, weights } = filteredBy({ unit: "words" }).matrix(0, 0)!;
  expect([rows, columns]).toEqual([2, 2]);
  close(weights, [1, 0, 0.375, 0.625]);
});

test("without special tokens the rest is renormalized; dimmed ones stay", () => {
  close(filteredBy({ specials: "hidden" }).matrix(0, 0)!.weights, [1, 0, 1 / 3, 2 / 3]);
  expect(filteredBy({}).matrix(0, 0)!.rows).toBe(3);
});

test("a pair filter hides but does not renormalize", () => {
  const filtered = filteredBy({ pairs: "ba" });
  expect(filtered.rows.map((row) => row.label)).toEqual(["seen"]);
  close(filtered.matrix(0, 0)!.weights, [0.25, 0.25]);
  const within = filteredBy({ pairs: "within" }).matrix(0, 0)!;
  expect(within.weights[2 * 3 + 0]).toBe(0);
  expect(within.weights[2 * 3 + 2]).toBeCloseTo(0.5, 2);
});

test("a mean leaves out what is missing", () => {
  const matrix = { rows: 1, columns: 3, weights: Float32Array.of(0.2, Number.NaN, 0.8) };
  const two = { rows: 1, columns: 3, weights: Float32Array.of(0.4, Number.NaN, 0.2) };
  close(meanOf([matrix, two]).weights, [0.3, Number.NaN, 0.5]);
});

test("the terms of a neuron view add up", async () => {
  const vectors = await block.vectors.get(0)!.whole();
  const recorded = block.planes[0].value!.weights(1).subarray(6, 9);
  const neurons = neuronsOf(block, vectors, 1, 2, recorded);
  neurons.products.forEach((terms, key) => {
    const sum = terms.reduce((total, term) => total + term, 0);
    expect(sum).toBeCloseTo(neurons.dots[key], 4);
    expect(sum * neurons.scale!).toBeCloseTo(neurons.scores[key], 4);
    const worked = workedSum(neurons, key);
    expect(worked.up + worked.down).toBeCloseTo(worked.dot, 4);
    expect(worked.most[0].product).toBeGreaterThanOrEqual(worked.most[1].product);
  });
  const order = neuronOrder(neurons, "contribution");
  const values = order.map((i) => neurons.contribution[i]);
  expect(values).toEqual([...values].sort((a, b) => b - a));
  expect(neuronOrder(neurons, "number")).toEqual([0, 1, 2, 3]);
});

test("a head is titled from its numbers", () => {
  const { rows, columns } = filteredBy({});
  const matrix = {
    rows: 3,
    columns: 3,
    weights: Float32Array.of(1, 0, 0, 0.9, 0.1, 0, 0.1, 0.6, 0.3),
  };
  const link = strongestLink(matrix, rows, columns, 2, null)!;
  expect([link.from.label, link.to.label]).toEqual(["seen", "un"]);
  const said = titleOf(null, null, [link], true);
  expect([said.lead, said.words]).toEqual(["reads the token before:", []]);
  expect(titleOf("first_token", 0.64, [null], false).lead).toContain("64 % on average");
  expect(titleOf("duplicate_token", 0.8, [{ ...link, weight: 0.8 }], true).lead).toContain(
    "across the two",
  );
  expect(titleOf("first_token", 0.6, [link], true).lead).toBe("reads the token before:");
  expect(titleOf("first_token", 0.6, [{ ...link, weight: 0.1 }], true).lead).toContain(
    "attention sink",
  );
});

test("a caption names the strongest, and what the rest adds up to", () => {
  const { top, others, rest } = summary([0.5, 0.02, 0.3, 0.15, 0.03], 2, 0.1);
  expect(top.map(({ index }) => index)).toEqual([0, 2]);
  expect(others).toBe(3);
  expect(rest).toBeCloseTo(0.2);
  expect([1, 2, 3, 4, 11, 12, 13, 21, 112].map(ordinal).join(" ")).toBe(
    "1st 2nd 3rd 4th 11th 12th 13th 21st 112th",
  );
});

test("numbers say how well they are known", () => {
  expect(formatWeight(0.43125, "exact")).toBe("0.4313");
  expect(formatWeight(0.43125, "fine")).toBe("0.431");
  expect(formatWeight(0.43125, "coarse")).toBe("≈0.43");
  expect(formatWeight(Number.NaN, "fine")).toBe("missing");
  expect(formatWeight(-0.0001, "fine")).toBe("0.000");
  expect(formatNumber(-12.345)).toBe("−12.3");
  expect([points(0.034), points(-0.06)]).toEqual(["+3.4", "−6.0"]);
});

test("tokens are printed without anything invisible", () => {
  expect(["", " ", "\n", " the", "a\tb"].map(printed)).toEqual(["∅", "␣", "⏎", "the", "a⇥b"]);
});
