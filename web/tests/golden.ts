// The payload that Python wrote for both sides' tests.

import { readFileSync } from "node:fs";
import { bytesOfBase64 } from "../src/data/buffer.ts";
import { checkHeader } from "../src/data/payload.ts";
import { openTraces, type Trace } from "../src/data/trace.ts";

const file = new URL("../../tests/page/golden/payload.json", import.meta.url);
export const golden = JSON.parse(readFileSync(file, "utf-8")) as {
  header: Record<string, unknown>;
  buffers: string[];
};

export async function goldenTraces(): Promise<Trace[]> {
  return openTraces(checkHeader(golden.header), golden.buffers.map(bytesOfBase64));
}
