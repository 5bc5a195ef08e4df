// Golden payload that Python wrote, for tests on both sides.

import { readFileSync } from "node:fs";
import type { Header } from "../generated/payload.ts";
import { bufferReader, bytesOfBase64, type ReadBuffer } from "../src/data/decode.ts";
import { checkHeader } from "../src/data/parse.ts";
import { openTraces, type Trace } from "../src/data/trace.ts";
import { Session } from "../src/state/session.ts";

const file = new URL("../../tests/page/golden/payload.json", import.meta.url);
export const golden = JSON.parse(readFileSync(file, "utf-8")) as {
  header: Header;
  buffers: string[];
};

export const goldenBuffers: ReadBuffer = bufferReader((index) =>
  golden.buffers[index] ? bytesOfBase64(golden.buffers[index]) : null,
);

export async function goldenTraces(): Promise<Trace[]> {
  return openTraces(checkHeader(golden.header), goldenBuffers);
}

/** Session on the golden payload, with every layer unpacked. */
export async function goldenSession(fragment = ""): Promise<Session> {
  const traces = await goldenTraces();
  for (const trace of traces) {
    for (const block of trace.blocks) await Promise.all(block.planes.map((lazy) => lazy.whole()));
  }
  return new Session(golden.header, traces, null, fragment);
}
