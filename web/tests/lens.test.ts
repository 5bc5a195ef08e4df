import { expect, test } from "vitest";
import { printed } from "../src/data/axis.ts";
import { combine, difference, Lens } from "../src/data/lens.ts";
import { neuronOrder, neuronsOf } from "../src/data/neurons.ts";
import { entropy, formatNumber, formatWeight } from "../src/data/number.ts";
import { goldenTraces } from "./golden.ts";

const [block] = (await goldenTraces())[0].blocks;
const close = (weights: Float32Array, expected: number[]) =>
  expected.forEach((value, i) => {
    if (Number.isNaN(value)) expect(weights[i]).toBeNaN();
    else expect(weights[i]).toBeCloseTo(value, 2);
  });

test("words: attention to is summed, from is averaged", () => {
  const lens = new Lens(block, { unit: "word", specials: true, pair: "all" });
  const { rows, columns, weights } = lens.matrix(0, 0);
  expect([rows, columns]).toEqual([2, 2]);
  close(weights, [1, 0, 0.375, 0.625]);
});

test("without special tokens the rest is renormalized", () => {
  const lens = new Lens(block, { unit: "token", specials: false, pair: "all" });
  close(lens.matrix(0, 0).weights, [1, 0, 1 / 3, 2 / 3]);
});

test("a pair filter hides but does not renormalize", () => {
  const lens = new Lens(block, { unit: "token", specials: true, pair: "ba" });
  expect(lens.rows.map((row) => row.label)).toEqual(["seen"]);
  close(lens.matrix(0, 0).weights, [0.25, 0.25]);
});

test("mean, maximum and difference", () => {
  const one = { rows: 1, columns: 3, weights: Float32Array.of(0.2, Number.NaN, 0.8) };
  const two = { rows: 1, columns: 3, weights: Float32Array.of(0.4, Number.NaN, 0.2) };
  close(combine([one, two], "mean").weights, [0.3, Number.NaN, 0.5]);
  close(combine([one, two], "max").weights, [0.4, Number.NaN, 0.8]);
  close(difference(one, two)!.weights, [0.2, Number.NaN, -0.6]);
  expect(difference(one, { rows: 2, columns: 3, weights: new Float32Array(6) })).toBeNull();
});

test("the terms of a neuron view add up", () => {
  const neurons = neuronsOf(block, 0, 1, 2)!;
  neurons.products.forEach((terms, key) => {
    const sum = terms.reduce((total, term) => total + term, 0);
    expect(sum).toBeCloseTo(neurons.dots[key], 4);
    expect(sum * neurons.scale!).toBeCloseTo(neurons.scores[key], 4);
  });
  const order = neuronOrder(neurons, "contribution");
  const values = order.map((i) => neurons.contribution[i]);
  expect(values).toEqual([...values].sort((a, b) => b - a));
  expect(neuronOrder(neurons, "number")).toEqual([0, 1, 2, 3]);
  expect(neurons.states![1]).toHaveLength(2);
  expect(neuronsOf({ ...block, vectors: null }, 0, 1, 2)).toBeNull();
});

test("numbers say how well they are known", () => {
  expect(formatWeight(0.43125, "exact")).toBe("0.4313");
  expect(formatWeight(0.43125, "fine")).toBe("0.431");
  expect(formatWeight(0.43125, "coarse")).toBe("≈0.43");
  expect(formatWeight(Number.NaN, "fine")).toBe("missing");
  expect(formatWeight(-0.0001, "fine")).toBe("0.000");
  expect(formatNumber(-12.345)).toBe("−12.3");
  expect(entropy([0.5, 0.5, 0])).toBeCloseTo(Math.log(2), 6);
  expect(entropy([0, 0])).toBeNaN();
});

test("tokens are printed without anything invisible", () => {
  expect(["", " ", "\n", " the", "a\tb"].map(printed)).toEqual(["∅", "␣", "⏎", "the", "a⇥b"]);
});
