// Worker of a live page: loads the model and runs it in WebAssembly, on one thread.

import * as ort from "onnxruntime-web/wasm";
import { gunzip } from "../data/decode.ts";
import { type GraphInputs, readSource, type WorkerRequest } from "../data/live_files.ts";
import type { Outputs } from "../data/live_trace.ts";

const scope = globalThis as unknown as {
  onmessage: (event: MessageEvent<WorkerRequest & { id: number }>) => void;
  postMessage(message: unknown, transfer?: Transferable[]): void;
};
let session: ort.InferenceSession | null = null;

async function load({
  wasm,
  parts,
  bytes,
}: Extract<WorkerRequest, { kind: "load" }>): Promise<null> {
  const follow = (read: number) => scope.postMessage({ read });
  const binary = await gunzip(await readSource(wasm, follow));
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.proxy = false;
  ort.env.wasm.wasmBinary = binary.buffer;
  ort.env.logLevel = "error";
  const model = new Uint8Array(bytes);
  let start = 0;
  for (const part of parts) {
    const unpacked = await gunzip(await readSource(part, follow));
    model.set(unpacked, start);
    start += unpacked.length;
  }
  session = await ort.InferenceSession.create(model, { executionProviders: ["wasm"] });
  return null;
}

async function run(inputs: GraphInputs): Promise<Outputs> {
  const { feeds: given, gates, gateShape, rows, cells, cellWeights, hasTypes, wanted } = inputs;
  const [batch] = gateShape;
  const whole = (values: readonly number[], dims: number[]) =>
    new ort.Tensor("int64", BigInt64Array.from(values, BigInt), dims);
  const feeds: Record<string, ort.Tensor> = {
    gate: new ort.Tensor("float32", gates, gateShape),
    cell: whole(cells.flat(), [cells.length, 4]),
    cell_weight: new ort.Tensor("float32", Float32Array.from(cellWeights), [cells.length]),
  };
  for (const { name, dims, ids, values } of given) {
    const shape = [batch, ...dims];
    if (ids) {
      feeds[name] = whole(Array.from({ length: batch }, () => ids).flat(), shape);
      if (hasTypes) feeds.token_type_ids = whole(new Array(batch * ids.length).fill(0), shape);
    } else if (values) {
      const repeated = new Float32Array(batch * values.length);
      for (let i = 0; i < batch; i++) repeated.set(values, i * values.length);
      feeds[name] = new ort.Tensor("float32", repeated, shape);
    }
  }
  if (rows) feeds.rows = whole(rows, [rows.length]);
  const results = await session!.run(feeds, [...wanted]);
  const outputs: Record<string, Outputs[string]> = {};
  for (const [name, tensor] of Object.entries(results)) {
    outputs[name] = { data: tensor.data as Float32Array, dims: tensor.dims };
  }
  return outputs;
}

/** Requests are answered one after the other. */
let last: Promise<void> = Promise.resolve();

async function answer(request: WorkerRequest & { id: number }): Promise<void> {
  const { id } = request;
  try {
    const result = request.kind === "load" ? await load(request) : await run(request.inputs);
    const buffers = Object.values(result ?? {}).map(({ data }) => data.buffer as ArrayBuffer);
    scope.postMessage({ id, result }, buffers);
  } catch (error) {
    scope.postMessage({ id, error: error instanceof Error ? error.message : String(error) });
  }
}

scope.onmessage = ({ data }) => {
  last = last.then(() => answer(data));
};
