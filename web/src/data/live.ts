// Backend of a live page: the model runs in a worker of the page itself.

import { computed, type ReadonlySignal, signal } from "@preact/signals";
import type { Header, LiveFile, LivePart } from "../../generated/payload.ts";
import type { Edit } from "../state/selection.ts";
import {
  type Abilities,
  type Backend,
  NOTHING,
  RequestError,
  type TraceReply,
  type TraceRequest,
} from "./backend.ts";
import { gunzip, type ReadBuffer } from "./decode.ts";
import {
  FileError,
  type GraphInputs,
  readSource,
  type Source,
  type WorkerReply,
  type WorkerRequest,
} from "./live_files.ts";
import {
  type LiveInputs,
  liveTrace,
  liveVectors,
  logProbabilities,
  type Measured,
  type Outputs,
  pooled,
  predictedRows,
  predictionEffects,
  rowOfTensor,
  topOf,
  vectorEffects,
} from "./live_trace.ts";
import { Tokenizer, type TokenizerFile } from "./tokenizer.ts";

/** State of the model; a badge shows it. */
export type LiveStatus =
  | { readonly state: "waiting" }
  | { readonly state: "loading"; readonly read: number; readonly total: number }
  | { readonly state: "ready"; readonly difference: number }
  | { readonly state: "computing"; readonly since: number }
  | { readonly state: "refused"; readonly reason: string };

/** Smallest module with a vector instruction: browsers without SIMD find it invalid. */
const SIMD = [
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15,
  253, 98, 11,
];
/** Milliseconds without a run after which the model is idle. */
const PAUSE = 50;
/** Maximum bytes of attention in one batch of runs. */
const BATCH_BYTES = 64e6;

/** Model of a live page: loaded and checked once, then run on request. */
export class LiveModel {
  readonly live: LivePart;
  /** Reason why texts cannot be typed; empty if they can. */
  readonly typing = signal("");
  private readonly progress = signal<LiveStatus>({ state: "waiting" });
  private readonly since = signal(0);
  private tokenizer: Tokenizer | null = null;
  private worker: Worker | null = null;
  private readonly waiting = new Map<number, (reply: WorkerReply) => void>();
  private sent = 0;
  private started: Promise<void> | null = null;

  constructor(
    readonly header: Header,
    private readonly readBuffer: ReadBuffer,
  ) {
    this.live = header.live!;
  }

  readonly status: ReadonlySignal<LiveStatus> = computed(() => {
    const status = this.progress.value;
    const isRunning = status.state === "ready" && this.since.value > 0;
    return isRunning ? { state: "computing", since: this.since.value } : status;
  });

  readonly isReady: ReadonlySignal<boolean> = computed(() => this.progress.value.state === "ready");

  /** Load and check the model; rejects with the reason if it cannot run. */
  start(): Promise<void> {
    this.started ??= this.load().catch((error: unknown) => {
      const reason = error instanceof Error ? error.message : String(error);
      this.progress.value = { state: "refused", reason };
      this.worker?.terminate();
      throw new RequestError(`The model does not run in this page: ${reason}.`);
    });
    this.started.catch(() => {});
    return this.started;
  }

  private async load(): Promise<void> {
    const { live } = this;
    if (typeof WebAssembly !== "object" || !WebAssembly.validate(Uint8Array.from(SIMD))) {
      throw new FileError("this browser lacks WebAssembly SIMD");
    }
    const total = [live.wasm, ...live.files].reduce((sum, { bytes }) => sum + bytes, 0);
    this.progress.value = { state: "loading", read: 0, total };
    const code = await readSource(sourceOf(live.worker));
    const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
    const worker = new Worker(address);
    this.worker = worker;
    worker.onerror = ({ message }) => {
      const error = message || "its worker failed";
      for (const id of [...this.waiting.keys()]) this.receive({ id, error }, total);
    };
    worker.onmessage = ({ data }: MessageEvent<WorkerReply>) => this.receive(data, total);
    const parts = live.files.map(sourceOf);
    const { bytes } = live;
    const loaded = this.send({ kind: "load", wasm: sourceOf(live.wasm), parts, bytes });
    await Promise.all([loaded, this.openTokenizer()]);
    URL.revokeObjectURL(address);
    const difference = await this.prove();
    this.progress.value = { state: "ready", difference };
  }

  private receive(reply: WorkerReply, total: number): void {
    if ("read" in reply) {
      const before = this.progress.peek();
      const read = (before.state === "loading" ? before.read : 0) + reply.read;
      this.progress.value = { state: "loading", read, total };
      return;
    }
    this.waiting.get(reply.id)?.(reply);
    this.waiting.delete(reply.id);
  }

  private send<T>(request: WorkerRequest): Promise<T> {
    const id = ++this.sent;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, (reply) => {
        if ("error" in reply) reject(new RequestError(shortened(reply.error)));
        else if ("result" in reply) resolve(reply.result as T);
      });
      this.worker!.postMessage({ ...request, id });
    });
  }

  private async openTokenizer(): Promise<void> {
    const { tokenizer: file, tokenizer_refusal: refusal } = this.live;
    this.typing.value = refusal ?? "";
    if (!file) return;
    const text = new TextDecoder().decode(await gunzip(await readSource(sourceOf(file))));
    const tokenizer = new Tokenizer(JSON.parse(text) as TokenizerFile);
    this.tokenizer = tokenizer;
    const { failures } = tokenizer;
    if (failures > 0) this.typing.value = `the tokenizer differs on ${failures} of its test texts`;
  }

  /** Repeat the cases stored with the page; returns the largest difference. */
  private async prove(): Promise<number> {
    let largest = 0;
    for (const { ids, off, rows, tolerance, ...buffers } of this.live.proof.cases) {
      const gates = this.gates(1);
      if (off) gates[off[0] * this.live.heads + off[1]] = 0;
      const outputs = await this.run(ids, gates, { rows, wanted: ["attention", "output"] });
      for (const name of ["attention", "output"] as const) {
        const { data } = outputs[name];
        const bytes = await this.readBuffer(buffers[name], 4 * data.length);
        const expected = new Float32Array(bytes.buffer, bytes.byteOffset, data.length);
        const apart = largestOf(data.map((value, i) => value - expected[i]));
        const difference = name === "attention" ? apart : apart / largestOf(expected);
        if (!(difference <= tolerance)) {
          throw new FileError(`${name} differs by ${difference.toExponential(0)}`);
        }
        largest = Math.max(largest, difference);
      }
    }
    return largest;
  }

  gates(batch: number): Float32Array {
    return new Float32Array(batch * this.live.layers.length * this.live.heads).fill(1);
  }

  /** Run the graph on copies of one text, each with its gates. */
  async run(
    ids: readonly number[],
    gates: Float32Array,
    options: Partial<Pick<GraphInputs, "rows" | "cells" | "cellWeights">> &
      Pick<GraphInputs, "wanted">,
  ): Promise<Outputs> {
    const { layers, heads, kind, has_types: hasTypes } = this.live;
    const batch = gates.length / (layers.length * heads);
    // A graph without a mask token still takes one row.
    const rows = options.rows?.length ? options.rows : [ids.length - 1];
    const takesRows = kind === "next" || kind === "mask";
    const inputs: GraphInputs = {
      ids,
      gates,
      gateShape: [batch, layers.length, heads],
      cells: [],
      cellWeights: [],
      hasTypes,
      ...options,
      rows: takesRows ? rows : null,
    };
    this.since.value ||= performance.now();
    try {
      return await this.send<Outputs>({ kind: "run", inputs });
    } finally {
      // The next batch of a measurement follows at once.
      setTimeout(() => {
        if (this.waiting.size === 0) this.since.value = 0;
      }, PAUSE);
    }
  }

  spell = (id: number): string => this.tokenizer?.spell(id) ?? `<${id}>`;

  /** Read one text; raises RequestError if the model cannot. */
  private read(text: string): LiveInputs {
    const { max_tokens: most } = this.live;
    if (!this.tokenizer || this.typing.peek()) {
      throw new RequestError(`Texts cannot be typed in this page: ${this.typing.peek()}.`);
    }
    if (!text.trim()) throw new RequestError("The text is empty. Type at least one word.");
    if (/\p{Surrogate}/u.test(text)) throw new RequestError("The text holds half a character.");
    const { ids, tokens } = this.tokenizer.read(text);
    if (ids.length > most) {
      throw new RequestError(
        `The text has ${ids.length} tokens; the model in this page reads ${most}. Shorten it.`,
      );
    }
    if (tokens.special.every(Boolean)) {
      throw new RequestError("The text gives no token of its own. Type at least one word.");
    }
    return { title: text.trim(), ids, tokens };
  }

  /** Read one text, or two to compare. */
  async requestTrace(request: TraceRequest, signal: AbortSignal): Promise<TraceReply> {
    await this.start();
    const inputs = request.inputs.map(({ text }) => this.read(text));
    const backend = new LiveBackend(this, inputs);
    const traces = [];
    for (const input of inputs) {
      traces.push(await backend.trace(input));
      signal.throwIfAborted();
    }
    // Story, tour, exercise, wires and steps are about the stored texts.
    const { format, version, place, evidence, report, live, command } = this.header;
    const header: Header = {
      ...{ format, version, place, evidence, live: live! },
      ...(report ? { report } : {}),
      command: command.replace(/ --text .*/s, ""),
      story: [],
      selection: this.live.kind === "next" ? `word=${inputs[0].ids.length - 1}` : "",
      examples: [{ title: inputs[0].title, traces: inputs.map((_, i) => i) }],
      traces: this.header.traces,
    };
    return { header, traces, backend };
  }

  /** Backend of the traces stored with the page. */
  get storedBackend(): LiveBackend {
    const { inputs } = this.live;
    const { traces } = this.header;
    const stack = this.header.traces[0].blocks[0].queries;
    return new LiveBackend(
      this,
      traces.map(({ title, stacks }, i) => {
        const ids = inputs[i]?.ids;
        return ids ? { title, ids, tokens: stacks[stack] } : null;
      }),
    );
  }
}

/** Error of the worker in the words of a page. */
function shortened(error: string): string {
  const isMemory = /bad_alloc|out of memory|allocat/i.test(error);
  return isMemory ? "the browser has too little memory" : error;
}

function largestOf(values: Float32Array): number {
  // A number that is not one must not pass.
  return values.reduce((most, value) => (Math.abs(value) <= most ? most : Math.abs(value)), 0);
}

function sourceOf(file: LiveFile): Source {
  const url = new URL(file.name, document.baseURI).href;
  if (file.source === "file") return { file, url, text: null };
  const element = document.getElementById(file.name);
  const text = element?.textContent ?? "";
  element?.remove(); // The page keeps one copy of the model, not two.
  return { file, url, text };
}

/** Requests of one explorer on texts that the page's own model reads. */
export class LiveBackend implements Backend {
  readonly can: ReadonlySignal<Abilities>;
  /** Attention of texts read here; stored ones keep what Python measured. */
  private readonly attention = new Map<LiveInputs, Float32Array>();
  private readonly measured = new Map<number, Measured>();

  constructor(
    readonly model: LiveModel,
    private readonly inputs: readonly (LiveInputs | null)[],
  ) {
    const { vectors } = model.live;
    this.can = computed(() => {
      if (!model.isReady.value) return NOTHING;
      const runs = inputs.every((input) => input !== null);
      const neurons = runs && vectors.includes("queries") && vectors.includes("keys");
      const trace = model.typing.value === "";
      return { ...NOTHING, trace, off: runs, cell: runs, effects: runs, rows: runs, neurons };
    });
  }

  /** Trace of a text, plain or under edits. */
  async trace(input: LiveInputs, edits: readonly Edit[] = []) {
    const { model } = this;
    const { live, header } = model;
    const rows = predictedRows(live, input.ids);
    const wanted = ["attention", "output"];
    const { gates, ...cells } = graphEdits(model, edits);
    const outputs = await model.run(input.ids, gates, { rows, wanted, ...cells });
    if (edits.length === 0) this.attention.set(input, outputs.attention.data);
    const changed = edits.length > 0 ? "with edits" : null;
    return liveTrace(live, header.traces[0], input, outputs, model.spell, changed);
  }

  row: Backend["row"] = async ({ trace, layer, head, query }) => {
    const { layers, heads } = this.model.live;
    const input = this.inputs[trace];
    const weights = input && this.attention.get(input);
    if (!weights) return null;
    const n = input.ids.length;
    const start = ((layers.indexOf(layer) * heads + head) * n + query) * n;
    return weights.slice(start, start + n);
  };

  async neurons(trace: number, _block: string, layer: number) {
    const { model } = this;
    const { ids } = this.input(trace);
    const outputs = await model.run(ids, model.gates(1), { wanted: model.live.vectors });
    return liveVectors(model.live, outputs, model.live.layers.indexOf(layer));
  }

  async edit(edits: readonly Edit[], signal: AbortSignal) {
    const traces = [];
    for (const [i] of this.inputs.entries()) {
      signal.throwIfAborted();
      traces.push(await this.trace(this.input(i), edits));
    }
    return traces;
  }

  effects: Backend["effects"] = async (trace, position, follow, signal, first) => {
    const { model } = this;
    const { layers, heads, kind, pooling, exclusive, labels } = model.live;
    const { ids } = this.input(trace);
    if (ids.length < 2) throw new RequestError("The text is one token. Type a longer one.");
    const place = kind === "next" || kind === "mask" ? this.predictedAt(ids, position) : null;
    const options = { rows: place === null ? [] : [place], wanted: ["output"] };
    const total = layers.length * heads;
    follow({ done: 0, total });
    const base = (await model.run(ids, model.gates(1), options)).output;
    const candidates = kind === "vector" ? [] : topOf(rowOfTensor(base, 0));
    const read = (output: Outputs[string], batch: number) => {
      if (kind === "vector") return pooled(output, batch, pooling);
      const logs = logProbabilities(rowOfTensor(output, batch), exclusive);
      return Float64Array.from(candidates, (id) => logs[id]);
    };
    const measured: Measured = { before: read(base, 0), after: layers.map(() => []) };
    this.measured.set(trace, measured);
    const names = candidates.map((id) => (kind === "label" ? labels[id] : model.spell(id)));
    const [other] = [...this.measured].filter(([i]) => i !== trace).map(([, one]) => one);
    const table = () =>
      kind === "vector"
        ? vectorEffects(measured, pooling, other ?? null)
        : predictionEffects(measured, place, names);
    const bytes = 4 * total * ids.length ** 2;
    const size = Math.max(1, Math.min(heads, Math.floor(BATCH_BYTES / bytes)));
    const order = layers.map((_, i) => (i + Math.max(0, layers.indexOf(first))) % layers.length);
    let done = 0;
    for (const layer of order) {
      for (let start = 0; start < heads; start += size) {
        signal.throwIfAborted();
        const count = Math.min(size, heads - start);
        const gates = model.gates(count);
        for (let i = 0; i < count; i++) gates[i * total + layer * heads + start + i] = 0;
        const { output } = await model.run(ids, gates, options);
        for (let i = 0; i < count; i++) measured.after[layer][start + i] = read(output, i);
        done += count;
        if (!signal.aborted) follow({ done, total }, table());
      }
    }
    return table();
  };

  async score(): Promise<never> {
    throw new RequestError("A score is taken apart by `headscope serve`, not in a page.");
  }

  private input(trace: number): LiveInputs {
    const input = this.inputs[trace];
    if (!input) throw new RequestError("The model in this page cannot read this text.");
    return input;
  }

  private predictedAt(ids: readonly number[], position: number | null): number {
    const rows = predictedRows(this.model.live, ids);
    const place = position ?? rows.at(-1);
    if (place === undefined || !rows.includes(place)) {
      throw new RequestError("Nothing is predicted here: the text has no mask token.");
    }
    return place;
  }
}

/** Inputs of the graph for edits. */
function graphEdits(model: LiveModel, edits: readonly Edit[]) {
  const { live } = model;
  const made = {
    gates: model.gates(1),
    cells: [] as [number, number, number, number][],
    cellWeights: [] as number[],
  };
  for (const edit of edits) {
    const row = live.layers.indexOf(edit.layer);
    if (edit.kind === "off") made.gates[row * live.heads + edit.head] = 0;
    else if (edit.kind === "cell") {
      if (live.causal && edit.key > edit.query) {
        throw new RequestError(
          `Word ${edit.query} cannot read word ${edit.key}, which comes later.`,
        );
      }
      made.cells.push([row, edit.head, edit.query, edit.key]);
      made.cellWeights.push(edit.weight);
    } else {
      throw new RequestError("Neurons are scaled by `headscope serve`, not in a page.");
    }
  }
  return made;
}
