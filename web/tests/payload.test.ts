import { expect, test } from "vitest";
import { bytesOfBase64 } from "../src/data/buffer.ts";
import { dotsOf, scoresOf, softmax } from "../src/data/exact.ts";
import { checkHeader, PayloadError, parseHeader } from "../src/data/payload.ts";
import { openTraces } from "../src/data/trace.ts";
import { golden, goldenTraces } from "./golden.ts";

test("the golden payload opens with the numbers Python put in", async () => {
  const [trace] = await goldenTraces();
  expect(trace.title).toBe("unseen");
  const [block] = trace.blocks;
  expect(block.queryTokens.texts).toEqual(["<s>", "un", "seen"]);
  expect(block.queryTokens.special).toEqual([true, false, false]);
  expect(block.queryTokens.groups).toEqual([[0], [1, 2]]);
  expect(block.queryTokens.wordTexts).toEqual(["<s>", "unseen"]);
  expect(block.causal).toBe(true);
  const expected = [1, 0, 0, 0.9, 0.1, 0, 0.123, 0.456, 0.421];
  block.planes.weights(1, 0).forEach((weight, i) => {
    expect(Math.abs(weight - expected[i])).toBeLessThan(0.0005);
  });
  expect(block.planes.weights(1, 1).every(Number.isNaN)).toBe(true);
  expect([block.has(1, 0), block.has(1, 1)]).toEqual([true, false]);
  expect(block.statistics.entropy[0][1]).toBe(0);
});

test("vectors and states have their numbers", async () => {
  const [block] = (await goldenTraces())[0].blocks;
  const { vectors, hidden } = block;
  const close = (vector: Float32Array, expected: number[]) =>
    expected.forEach((value, i) => {
      expect(vector[i]).toBeCloseTo(value, 3);
    });
  close(vectors!.queries.vector(0, 0, 0), [-1, -15 / 16, -14 / 16, -13 / 16]);
  close(vectors!.queries.vector(1, 1, 2), [1.75, 29 / 16, 30 / 16, 31 / 16]);
  close(vectors!.keys.vector(1, 0, 0), [-0.5, -0.625, -0.75, -0.875]);
  close(hidden!.numbers.vector(2, 1), [14, 15]);
  expect(vectors!.groups).toEqual([0, 0]);
});

test("scores are scale · q·k, and masked keys have none", async () => {
  const [block] = (await goldenTraces())[0].blocks;
  const dots = dotsOf(block, 1, 0, 1)!;
  const scores = scoresOf(block, 1, 0, 1)!;
  expect(scores[0]).toBeCloseTo(dots[0] * 0.25, 5);
  expect(Number.isNaN(scores[2])).toBe(true);
  const row = softmax(scores);
  expect(row[0] + row[1]).toBeCloseTo(1, 6);
  expect(row[2]).toBe(0);
});

test("damage is told, not shown", async () => {
  expect(() => parseHeader('{"format": "headsc')).toThrow(PayloadError);
  expect(() => parseHeader("{}")).toThrow("it is not an explorer payload");
  expect(() => checkHeader({ ...golden.header, version: 99 })).toThrow("version is 99, expected 1");
  expect(() => checkHeader({ ...golden.header, traces: [] })).toThrow("it has no trace");
  expect(() => bytesOfBase64("H4sI*")).toThrow("not base64");
  const packed = golden.buffers.map(bytesOfBase64);
  const header = checkHeader(golden.header);
  await expect(openTraces(header, packed.slice(0, 1))).rejects.toThrow("cut off or damaged");
  packed[0] = packed[0].slice(0, 12);
  await expect(openTraces(header, packed)).rejects.toThrow("does not unpack");
});
