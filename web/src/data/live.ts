// Backend of a live page: the model runs in a worker of the page itself.

import { computed, type ReadonlySignal, signal } from "@preact/signals";
import type { Header, LiveBlock, LiveFile, LivePart, LiveTensor } from "../../generated/payload.ts";
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
  type Feed,
  FileError,
  type GraphInputs,
  readSource,
  type Source,
  type WorkerReply,
  type WorkerRequest,
} from "./live_files.ts";
import {
  idsOf,
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
import type { Trace } from "./trace.ts";

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
  /** Names of all tokens, where typed texts are refused. */
  private names: readonly string[] = [];
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
    const text = new TextDecoder().decode(await gunzip(await readSource(sourceOf(file))));
    if (refusal !== null) {
      this.names = (JSON.parse(text) as { names: string[] }).names;
      return;
    }
    const tokenizer = new Tokenizer(JSON.parse(text) as TokenizerFile);
    this.tokenizer = tokenizer;
    const { failures } = tokenizer;
    if (failures > 0) this.typing.value = `the tokenizer differs on ${failures} of its test texts`;
  }

  /** Repeat the cases stored with the page; returns the largest difference. */
  private async prove(): Promise<number> {
    let largest = 0;
    for (const { input, off, rows, tolerance, outputs: buffers } of this.live.proof.cases) {
      const gates = this.gates(1);
      if (off) gates[off[0] * this.heads + off[1]] = 0;
      const options = { rows, wanted: Object.keys(buffers) };
      const outputs = await this.run(await this.feeds(input), gates, options);
      for (const [name, { data }] of Object.entries(outputs)) {
        const expected = await this.floats(buffers[name], data.length);
        const apart = largestOf(data.map((value, i) => value - expected[i]));
        const difference = name === "output" ? apart / largestOf(expected) : apart;
        if (!(difference <= tolerance)) {
          throw new FileError(`${name} differs by ${difference.toExponential(0)}`);
        }
        largest = Math.max(largest, difference);
      }
    }
    return largest;
  }

  private async floats(buffer: number, count: number): Promise<Float32Array> {
    const bytes = await this.readBuffer(buffer, 4 * count);
    return new Float32Array(bytes.buffer, bytes.byteOffset, count);
  }

  private feeds(tensors: readonly LiveTensor[]): Promise<Feed[]> {
    return Promise.all(
      tensors.map(async ({ data, ...feed }) => {
        const count = feed.dims.reduce((product, size) => product * size, 1);
        return { ...feed, values: data === null ? null : await this.floats(data, count) };
      }),
    );
  }

  /** Layers of all blocks, and heads of the block that has most. */
  private get rows(): number {
    return this.live.blocks.reduce((sum, { layers }) => sum + layers.length, 0);
  }

  get heads(): number {
    return Math.max(...this.live.blocks.map(({ heads }) => heads));
  }

  gates(batch: number): Float32Array {
    return new Float32Array(batch * this.rows * this.heads).fill(1);
  }

  /** A block, and the row of its first layer among the gates. */
  block(name: string): { block: LiveBlock; first: number } {
    const { blocks } = this.live;
    const index = Math.max(
      0,
      blocks.findIndex((block) => block.name === name),
    );
    const before = blocks.slice(0, index).reduce((sum, { layers }) => sum + layers.length, 0);
    return { block: blocks[index], first: before };
  }

  /** Run the graph on copies of one input, each with its gates. */
  async run(
    feeds: readonly Feed[],
    gates: Float32Array,
    options: Partial<Pick<GraphInputs, "rows" | "cells" | "cellWeights">> &
      Pick<GraphInputs, "wanted">,
  ): Promise<Outputs> {
    const { kind, has_types: hasTypes } = this.live;
    const { rows: layers, heads } = this;
    const batch = gates.length / (layers * heads);
    // A graph without a mask token still takes one row.
    const rows = options.rows?.length ? options.rows : [idsOf({ feeds }).length - 1];
    const takesRows = kind === "next" || kind === "mask";
    const inputs: GraphInputs = {
      feeds,
      gates,
      gateShape: [batch, layers, heads],
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

  spell = (id: number): string => this.tokenizer?.spell(id) ?? this.names[id] ?? `<${id}>`;

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
    const feeds = [{ name: "input_ids", dims: [ids.length], ids, values: null }];
    const stacks = { [this.header.traces[0].blocks[0].queries]: tokens };
    return { title: text.trim(), feeds, stacks, media: { pictures: [], sound: null } };
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
      selection: this.live.kind === "next" ? `word=${idsOf(inputs[0]).length - 1}` : "",
      examples: [{ title: inputs[0].title, traces: inputs.map((_, i) => i) }],
      traces: this.header.traces,
    };
    return { header, traces, backend };
  }

  /** Backend of the traces stored with the page. */
  async storedBackend(opened: readonly Trace[]): Promise<LiveBackend> {
    const stored = this.header.traces.map(async ({ title, stacks }, i) => {
      const tensors = this.live.inputs[i];
      const { media } = opened[i];
      return tensors && { title, stacks, media, feeds: await this.feeds(tensors) };
    });
    return new LiveBackend(this, await Promise.all(stored));
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
  private readonly attention = new Map<LiveInputs, Outputs>();
  private readonly measured = new Map<string, Measured>();

  constructor(
    readonly model: LiveModel,
    private readonly inputs: readonly (LiveInputs | null)[],
  ) {
    const { blocks } = model.live;
    const has = (name: string) => blocks.every(({ vectors }) => vectors.includes(name));
    this.can = computed(() => {
      if (!model.isReady.value) return NOTHING;
      const runs = inputs.every((input) => input !== null);
      const neurons = runs && has("queries") && has("keys");
      const trace = model.typing.value === "";
      return { ...NOTHING, trace, off: runs, cell: runs, effects: runs, rows: runs, neurons };
    });
  }

  /** Trace of a text, plain or under edits. */
  async trace(input: LiveInputs, edits: readonly Edit[] = []) {
    const { model } = this;
    const { live, header } = model;
    const rows = predictedRows(live, idsOf(input));
    const wanted = ["output", ...live.blocks.map(({ prefix }) => `${prefix}attention`)];
    const { gates, ...cells } = graphEdits(model, edits);
    const outputs = await model.run(input.feeds, gates, { rows, wanted, ...cells });
    if (edits.length === 0) this.attention.set(input, outputs);
    const changed = edits.length > 0 ? "with edits" : null;
    return liveTrace(live, header.traces[0], input, outputs, model.spell, changed);
  }

  row: Backend["row"] = async ({ trace, block: name, layer, head, query }) => {
    const { block } = this.model.block(name);
    const input = this.inputs[trace];
    const outputs = input && this.attention.get(input);
    if (!outputs) return null;
    const place = [0, block.layers.indexOf(layer), head, query];
    return rowOfTensor(outputs[`${block.prefix}attention`], ...place).slice();
  };

  async neurons(trace: number, name: string, layer: number) {
    const { model } = this;
    const { block } = model.block(name);
    const wanted = block.vectors.map((vectors) => block.prefix + vectors);
    const outputs = await model.run(this.input(trace).feeds, model.gates(1), { wanted });
    return liveVectors(block, outputs, block.layers.indexOf(layer));
  }

  async edit(edits: readonly Edit[], signal: AbortSignal) {
    const traces = [];
    for (const [i] of this.inputs.entries()) {
      signal.throwIfAborted();
      traces.push(await this.trace(this.input(i), edits));
    }
    return traces;
  }

  effects: Backend["effects"] = async (trace, name, position, follow, signal, first) => {
    const { model } = this;
    const { kind, pooling, exclusive, labels, blocks } = model.live;
    const { block, first: before } = model.block(name);
    const { layers, heads } = block;
    const input = this.input(trace);
    const { feeds } = input;
    const ids = idsOf(input);
    if (blocks.length === 1 && ids.length === 1)
      throw new RequestError("The text is one token. Type a longer one.");
    const place = kind === "next" || kind === "mask" ? this.predictedAt(ids, position) : null;
    const options = { rows: place === null ? [] : [place], wanted: ["output"] };
    const total = layers.length * heads;
    follow({ done: 0, total });
    const base = (await model.run(feeds, model.gates(1), options)).output;
    const candidates = kind === "vector" ? [] : topOf(rowOfTensor(base, 0));
    const read = (output: Outputs[string], batch: number) => {
      if (kind === "vector") return pooled(output, batch, pooling);
      const logs = logProbabilities(rowOfTensor(output, batch), exclusive);
      return Float64Array.from(candidates, (id) => logs[id]);
    };
    const measured: Measured = { before: read(base, 0), after: layers.map(() => []) };
    this.measured.set(`${name}/${trace}`, measured);
    const names = candidates.map((id) => (kind === "label" ? labels[id] : model.spell(id)));
    const [other] = this.inputs.flatMap((_, i) =>
      i === trace ? [] : (this.measured.get(`${name}/${i}`) ?? []),
    );
    const table = () =>
      kind === "vector"
        ? vectorEffects(measured, pooling, other ?? null)
        : predictionEffects(measured, place, names);
    const longest = Math.max(...Object.values(input.stacks).map(({ tokens }) => tokens.length));
    const bytes = 4 * total * longest ** 2;
    const size = Math.max(1, Math.min(heads, Math.floor(BATCH_BYTES / bytes)));
    const order = layers.map((_, i) => (i + Math.max(0, layers.indexOf(first))) % layers.length);
    let done = 0;
    for (const layer of order) {
      for (let start = 0; start < heads; start += size) {
        signal.throwIfAborted();
        const count = Math.min(size, heads - start);
        const gates = model.gates(count);
        const all = gates.length / count;
        for (let i = 0; i < count; i++) {
          gates[i * all + (before + layer) * model.heads + start + i] = 0;
        }
        const { output } = await model.run(feeds, gates, options);
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
  const made = {
    gates: model.gates(1),
    cells: [] as [number, number, number, number][],
    cellWeights: [] as number[],
  };
  for (const edit of edits) {
    const { block, first } = model.block(edit.block);
    const row = first + block.layers.indexOf(edit.layer);
    if (edit.kind === "off") made.gates[row * model.heads + edit.head] = 0;
    else if (edit.kind === "cell") {
      if (block.causal && edit.key > edit.query) {
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
