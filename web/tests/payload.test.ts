import { expect, test } from "vitest";
import { bufferReader, bytesOfBase64 } from "../src/data/decode.ts";
import { dotsOf, scoresOf, softmax } from "../src/data/exact_rows.ts";
import { checkHeader, PayloadError, parseHeader } from "../src/data/parse.ts";
import { openTraces } from "../src/data/trace.ts";
import { golden, goldenBuffers, goldenTraces } from "./golden.ts";

test("the golden payload opens with the numbers Python put in", async () => {
  const [trace] = await goldenTraces();
  expect([trace.title, trace.changed]).toEqual(["unseen", "without L1 H1"]);
  const [block] = trace.blocks;
  expect(block.queryTokens.texts).toEqual(["<s>", "un", "seen"]);
  expect(block.queryTokens.special).toEqual([true, false, false]);
  expect(block.queryTokens.groups).toEqual([[0], [1, 2]]);
  expect(block.queryTokens.wordTexts).toEqual(["<s>", "unseen"]);
  expect([block.causal, block.isFine]).toEqual([true, true]);
  const expected = [1, 0, 0, 0.9, 0.1, 0, 0.123, 0.456, 0.421];
  const planes = await block.planes[1].whole();
  planes.weights(0).forEach((weight, i) => {
    expect(Math.abs(weight - expected[i])).toBeLessThan(0.0005);
  });
  expect(planes.row(0, 2)[1]).toBeCloseTo(0.456, 3);
  expect(planes.weights(1).every(Number.isNaN)).toBe(true);
  expect([block.has(1, 0), block.has(1, 1)]).toEqual([true, false]);
  expect(block.groups).toEqual([
    [0, 0],
    [0, 0],
  ]);
});

test("vectors of a layer are unpacked when they are looked at", async () => {
  const asked: number[] = [];
  const [{ blocks }] = await openTraces(golden.header, (index, bytes) => {
    asked.push(index);
    return goldenBuffers(index, bytes);
  });
  const { coarse, vectors } = golden.header.traces[0].blocks[0];
  const { data } = vectors[0].queries;
  // The numbers of a short text need all its weights.
  expect(asked).toEqual(expect.arrayContaining(coarse));
  expect(blocks[0].planes[1].value).not.toBeNull();
  expect(asked).not.toContain(data);
  await blocks[0].vectors.get(0)!.whole();
  expect(asked).toContain(data);
});

test("predictions and effects are what Python measured", async () => {
  const [{ predictions, effects }] = await goldenTraces();
  expect(predictions!.positions[2].top[0]).toEqual({ text: " things", probability: 0.625 });
  expect(effects!.kind).toBe("prediction");
  if (effects?.kind !== "prediction") return;
  expect(effects.before[0]).toBeCloseTo(0.625, 3);
  const without = effects.without(0, 0, 0);
  expect(without).toBeGreaterThan(0);
  expect(without).toBeLessThan(1);
});

test("vectors have their numbers", async () => {
  const [block] = (await goldenTraces())[0].blocks;
  const close = (vector: Float32Array, expected: number[]) =>
    expected.forEach((value, i) => {
      expect(vector[i]).toBeCloseTo(value, 3);
    });
  const [first, second] = await Promise.all([0, 1].map((l) => block.vectors.get(l)!.whole()));
  close(first.queries.vector(0, 0), [-1, -15 / 16, -14 / 16, -13 / 16]);
  close(second.queries.vector(1, 2), [1.75, 29 / 16, 30 / 16, 31 / 16]);
  close(second.keys.vector(0, 0), [-0.5, -0.625, -0.75, -0.875]);
  expect(first.groups).toEqual([0, 0]);
});

test("scores are scale · q·k, and masked keys have none", async () => {
  const [block] = (await goldenTraces())[0].blocks;
  const vectors = await block.vectors.get(1)!.whole();
  const dots = dotsOf(vectors, 0, 1, 3);
  const scores = scoresOf(block, vectors, 0, 1);
  expect(scores[0]).toBeCloseTo(dots[0] * 0.25, 5);
  expect(Number.isNaN(scores[2])).toBe(true);
  const row = softmax(scores);
  expect(row[0] + row[1]).toBeCloseTo(1, 6);
  expect(row[2]).toBe(0);
});

test("damage is told, not shown", async () => {
  expect(() => parseHeader('{"format": "headsc')).toThrow(PayloadError);
  expect(() => parseHeader("{}")).toThrow("it is not an explorer payload");
  expect(() => checkHeader({ ...golden.header, version: 99 })).toThrow("version is 99, expected 3");
  expect(() => checkHeader({ ...golden.header, traces: [] })).toThrow("it has no trace");
  const odd = { ...golden.header, examples: [{ title: "", traces: [77] }] };
  expect(() => checkHeader(odd)).toThrow("an example names no trace");
  expect(() => bytesOfBase64("H4sI*")).toThrow("not base64");
  const packed = golden.buffers.map(bytesOfBase64);
  const header = checkHeader(golden.header);
  const cut = bufferReader((index) => (index === 0 ? packed[0] : null));
  await expect(openTraces(header, cut)).rejects.toThrow("cut off or damaged");
  const short = bufferReader((index) => packed[index].slice(0, 12));
  await expect(openTraces(header, short)).rejects.toThrow("does not unpack");
});
