import { expect, test } from "vitest";
import { inText, joinedTokens, spelled } from "../src/data/tokens.ts";

test("bytes of a character are named by it, part by part", () => {
  expect(spelled(["I", " <0xE5>", "<0x8C>", "<0xBB>", "生"])).toEqual([
    "I",
    " 医₁",
    "医₂",
    "医₃",
    "生",
  ]);
  expect(spelled(["<0xF0><0x9F>", "<0x8D>", "<0x95>"])).toEqual(["🍕₁", "🍕₂", "🍕₃"]);
  // Token with the end of one character and the start of the next.
  expect(spelled(["<0xC3>", "<0xA4><0xC3>", "<0xB6>"])).toEqual(["ä₁", "ä₂ö₁", "ö₂"]);
});

test("bytes that make no character stay as they are", () => {
  expect(spelled(["<0xE5>", "<0x8C>"])).toEqual(["<0xE5>", "<0x8C>"]);
  expect(spelled(["a", "<0xFF>", "b"])).toEqual(["a", "<0xFF>", "b"]);
  expect(spelled(["<0xE5>", " <0x8C>"])).toEqual(["<0xE5>", " <0x8C>"]);
});

test("running text has a character once, and spaces where tokens have them", () => {
  expect(["医₁", "医₂", "##ing", "word"].map(inText)).toEqual(["医", "₂", "ing", "word"]);
  expect(joinedTokens(["<", "b", ">", " bold", "ly"])).toEqual([false, true, true, false, true]);
  const words = ["the", "cat", "##s", ".", "医", "生"];
  expect(joinedTokens(words)).toEqual([false, false, true, true, true, true]);
  expect(joinedTokens(["cat", "fish"], [0, 0])).toEqual([false, true]);
});
