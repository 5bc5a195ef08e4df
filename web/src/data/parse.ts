// Parse payloads and reports, and check every field that views rely on.

import type { BlockPart, Header, TracePart, WiresPart } from "../../generated/payload.ts";
import type { Report } from "../../generated/report.ts";

const FORMAT = "headscope-explorer";
const VERSION = 3;
const REPORT_FORMAT = "headscope-report";
const REPORT_VERSION = 1;

/** Payload that cannot be shown; the page shows the message. */
export class PayloadError extends Error {}

/** Parse a header; raise PayloadError if it is invalid. */
export function parseHeader(text: string): Header {
  return checkHeader(parseJson(text));
}

export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new PayloadError("The data of this page is cut off or damaged (it is not JSON).");
  }
}

/** Check the fields of a header that views rely on. */
export function checkHeader(value: unknown): Header {
  const header = value as Header;
  need(isObject(value) && header.format === FORMAT, "it is not an explorer payload");
  need(header.version === VERSION, `its version is ${header.version}, expected ${VERSION}`);
  need(Array.isArray(header.traces) && header.traces.length > 0, "it has no trace");
  need(Array.isArray(header.examples) && header.examples.length > 0, "it has no example");
  for (const { traces } of header.examples) {
    const exist = traces?.every((index) => header.traces[index] !== undefined);
    need(exist && (traces.length === 1 || traces.length === 2), "an example names no trace");
  }
  for (const trace of header.traces) checkTrace(trace);
  const { steps, examples } = header;
  need(!steps || steps.length === examples.length, "its steps and examples differ");
  if (header.wires) checkWires(header.wires);
  return header;
}

function checkWires({ tokens, changed, pairs, templates, wires }: WiresPart): void {
  const [first, second] = tokens ?? [];
  const isWithin = (at: number) => at < (first?.length ?? 0);
  need(first?.length > 0 && first.length === second?.length, "the texts of its wires differ");
  need(changed?.every(isWithin) && wires?.every(({ at }) => isWithin(at)), "a wire has no word");
  need(
    pairs?.length === templates?.length &&
      wires.every(({ values }) => values?.length === pairs.length),
    "wires and pairs differ",
  );
}

export function checkTrace(trace: TracePart): void {
  need(isObject(trace.stacks) && Array.isArray(trace.blocks), "a trace has no tokens or blocks");
  need(trace.blocks.length > 0, "a trace has no attention");
  for (const tokens of Object.values(trace.stacks)) {
    const n = tokens.tokens?.length;
    for (const name of ["special", "segments", "generated", "words"] as const) {
      need(tokens[name]?.length === n, `tokens and ${name} differ in length`);
    }
    need((tokens.pieces?.length ?? n) === n, "tokens and pieces differ in length");
  }
  for (const block of trace.blocks) checkBlock(block, trace);
}

function checkBlock(block: BlockPart, trace: TracePart): void {
  const [layers, heads, queries, keys] = block.shape ?? [];
  const where = `block ${block.name}`;
  const isTable = (rows: unknown[][]) =>
    rows?.length === layers && rows.every((row) => row.length === heads);
  need(block.layers?.length === layers, `${where}: layers and shape differ`);
  need(block.heads === heads, `${where}: heads and shape differ`);
  for (const { length } of [block.coarse, block.fine, block.top?.steps].filter(
    (buffers) => buffers != null,
  )) {
    need(length === layers, `${where}: buffers and layers differ`);
  }
  need(Array.isArray(block.coarse), `${where}: it has no weights`);
  need(isTable(block.present), `${where}: heads and shape differ`);
  need(!block.roles || isTable(block.roles), `${where}: roles and heads differ`);
  need(
    trace.stacks[block.queries]?.tokens.length === queries,
    `${where}: queries and tokens differ`,
  );
  need(trace.stacks[block.keys]?.tokens.length === keys, `${where}: keys and tokens differ`);
}

/** Raise PayloadError unless `condition` holds. */
function need(condition: boolean, reason: string): void {
  if (!condition) throw new PayloadError(`The data of this page cannot be read: ${reason}.`);
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

/** Parse a report; raise PayloadError if it is invalid. */
export function parseReport(text: string): Report {
  const value = parseJson(text);
  const report = value as Report;
  need(isObject(value) && report.format === REPORT_FORMAT, "it is not a report");
  need(
    report.version === REPORT_VERSION,
    `its version is ${report.version}, expected ${REPORT_VERSION}`,
  );
  for (const name of ["subjects", "findings", "sections", "cards", "documents"] as const) {
    need(Array.isArray(report[name]), `it has no ${name}`);
  }
  return report;
}
