// Decode buffers: base64 and gzip to bytes, codes to attention weights, integers to vectors.

import { PayloadError } from "./parse.ts";

interface Base64Bytes {
  fromBase64?: (text: string) => Uint8Array<ArrayBuffer>;
}

export function bytesOfBase64(text: string): Uint8Array<ArrayBuffer> {
  const native = (Uint8Array as Base64Bytes).fromBase64;
  try {
    if (native) return native.call(Uint8Array, text);
    const binary = atob(text);
    const bytes = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
    return bytes;
  } catch {
    throw new PayloadError("The data of this page is cut off or damaged (not base64).");
  }
}

export async function gunzip(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  try {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  } catch {
    throw new PayloadError(
      "The data of this page is cut off or damaged (a block does not unpack).",
    );
  }
}

/** Read a numbered buffer of a payload, unpacked and checked for its length. */
export type ReadBuffer = (index: number, bytes: number) => Promise<Uint8Array<ArrayBuffer>>;

/** Unpack buffers on request. `read` returns the packed bytes of a buffer, or null. */
export function bufferReader(read: (index: number) => Uint8Array<ArrayBuffer> | null): ReadBuffer {
  return async (index, bytes) => {
    const packed = read(index);
    const bytesRead = packed ? await gunzip(packed) : null;
    if (bytesRead?.length !== bytes) {
      throw new PayloadError(
        `The data of this page is cut off or damaged: block ${index} has ` +
          `${bytesRead?.length ?? 0} bytes, expected ${bytes}.`,
      );
    }
    return bytesRead;
  };
}

const LAST_CODE = 254;
const MISSING_CODE = 255;
const FIRST_FINE_CODE = 24;
const FINE_LEVELS = 16;

/** Weight of each coarse code; NaN for missing. */
export const COARSE = Float32Array.from({ length: 256 }, (_, code) =>
  code === MISSING_CODE ? Number.NaN : (code / LAST_CODE) ** 2,
);

/** Weight of each code and fine level, at `code * 16 + level`. */
const FINE = Float32Array.from({ length: 256 * FINE_LEVELS }, (_, index) => {
  const code = index >> 4;
  if (code < FIRST_FINE_CODE || code === MISSING_CODE) return COARSE[code];
  const low = ((code - 0.5) / LAST_CODE) ** 2;
  const high = (Math.min(code + 0.5, LAST_CODE) / LAST_CODE) ** 2;
  return low + ((high - low) * (index & 15)) / (FINE_LEVELS - 1);
});

/** Attention of one layer. */
export interface Planes {
  weights(head: number): Float32Array;
  row(head: number, query: number): Float32Array;
}

/** Attention with whole rows. */
export interface WholePlanes extends Planes {
  /** Entropy of each row of a head in nats, of the weights as they are. */
  entropies(head: number): Float64Array;
}

/** Cell of each of `count` places; cells start at ⌊cell · count / side⌋. */
function cellsOf(count: number, side: number): Uint16Array {
  const cells = Uint16Array.from({ length: count }, (_, i) => i);
  if (count <= side) return cells;
  return cells.map((i) => Math.ceil(((i + 1) * side) / count) - 1);
}

/** Largest weight of each cell of a head's thumbnail, at most `side × side`. */
export function maximaOf(weights: Float32Array, queries: number, keys: number, side: number) {
  const [rows, columns] = [cellsOf(queries, side), cellsOf(keys, side)];
  const width = Math.min(keys, side);
  const maxima = new Float32Array(Math.min(queries, side) * width);
  for (let query = 0, at = 0; query < queries; query++) {
    const start = rows[query] * width;
    for (let key = 0; key < keys; key++, at++) {
      const cell = start + columns[key];
      if (weights[at] > maxima[cell]) maxima[cell] = weights[at];
    }
  }
  return maxima;
}

/** Sum of `terms` over each row. */
function rowSums(terms: Float32Array, keys: number): Float64Array {
  const sums = new Float64Array(terms.length / keys);
  for (let row = 0, at = 0; row < sums.length; row++) {
    let sum = 0;
    for (let key = 0; key < keys; key++, at++) sum += terms[at];
    sums[row] = sum;
  }
  return sums;
}

/** Term of a weight in the entropy; 0 for a missing one. */
const surprise = (weight: number) => (weight > 0 ? -weight * Math.log(weight) : 0);
const TERMS = { coarse: COARSE.map(surprise), fine: FINE.map(surprise) };

/** Attention of one layer as codes: a coarse plane, and a fine one where it was stored. */
export class CodedPlanes implements WholePlanes {
  constructor(
    readonly shape: readonly [heads: number, queries: number, keys: number],
    readonly coarse: Uint8Array,
    readonly fine: Uint8Array | null,
  ) {}

  weights(head: number): Float32Array {
    const [, queries, keys] = this.shape;
    return this.read(this.table, head * queries * keys, queries * keys);
  }

  row(head: number, query: number): Float32Array {
    const [, queries, keys] = this.shape;
    return this.read(this.table, (head * queries + query) * keys, keys);
  }

  entropies(head: number): Float64Array {
    const [, queries, keys] = this.shape;
    const terms = this.fine ? TERMS.fine : TERMS.coarse;
    return rowSums(this.read(terms, head * queries * keys, queries * keys), keys);
  }

  private get table(): Float32Array {
    return this.fine ? FINE : COARSE;
  }

  /** Values of codes in a table. */
  private read(table: Float32Array, start: number, size: number): Float32Array {
    const { coarse, fine } = this;
    const values = new Float32Array(size);
    for (let i = 0, place = start; i < size; i++, place++) {
      let index = coarse[place];
      if (fine) {
        const pair = fine[place >> 1];
        index = (index << 4) | (place & 1 ? pair >> 4 : pair & 15);
      }
      values[i] = table[index];
    }
    return values;
  }
}

/** Strongest keys of each row of one layer; other weights are 0. */
export class TopPlanes implements Planes {
  /** Keys, `head query rank`, in the order of the text. */
  private readonly keys: Uint16Array;

  constructor(
    readonly shape: readonly [heads: number, queries: number, keys: number],
    private readonly count: number,
    private readonly codes: Uint8Array,
    steps: Uint8Array,
  ) {
    const size = codes.length;
    this.keys = new Uint16Array(size);
    for (let i = 0; i < size; i++) {
      const before = i % count === 0 ? 0 : this.keys[i - 1];
      this.keys[i] = before + steps[i] + 256 * steps[size + i];
    }
  }

  weights(head: number): Float32Array {
    const [, queries, keys] = this.shape;
    const weights = new Float32Array(queries * keys);
    for (let query = 0; query < queries; query++) {
      weights.set(this.row(head, query), query * keys);
    }
    return weights;
  }

  row(head: number, query: number): Float32Array {
    const [, queries, keys] = this.shape;
    const row = new Float32Array(keys);
    const start = (head * queries + query) * this.count;
    if (this.codes[start] === MISSING_CODE) return row.fill(Number.NaN);
    for (let i = start; i < start + this.count; i++) {
      if (this.codes[i] > 0) row[this.keys[i]] = COARSE[this.codes[i]];
    }
    return row;
  }

  maxima(head: number, side: number): Float32Array {
    const [, queries, keys] = this.shape;
    const [rows, columns] = [cellsOf(queries, side), cellsOf(keys, side)];
    const width = Math.min(keys, side);
    const maxima = new Float32Array(Math.min(queries, side) * width);
    const size = queries * this.count;
    for (let i = 0, at = head * size; i < size; i++, at++) {
      const cell = rows[Math.floor(i / this.count)] * width + columns[this.keys[at]];
      const weight = COARSE[this.codes[at]];
      if (weight > maxima[cell]) maxima[cell] = weight;
    }
    return maxima;
  }
}

/** Attention of one layer with all its digits, `head query key`. */
export class FloatPlanes implements WholePlanes {
  constructor(
    private readonly tokens: number,
    private readonly all: Float32Array,
    private readonly rows = tokens,
  ) {}

  weights(head: number): Float32Array {
    const size = this.rows * this.tokens;
    return this.all.subarray(head * size, (head + 1) * size);
  }

  row(head: number, query: number): Float32Array {
    const start = (head * this.rows + query) * this.tokens;
    return this.all.subarray(start, start + this.tokens);
  }

  entropies(head: number): Float64Array {
    return rowSums(this.weights(head).map(surprise), this.tokens);
  }
}

/** Vectors along the last of several axes. */
export interface Numbers {
  readonly shape: readonly number[];
  readonly length: number;
  vector(...index: number[]): Float32Array;
}

/** Vectors with all their digits. */
export class FloatNumbers implements Numbers {
  constructor(
    readonly shape: readonly number[],
    private readonly values: Float32Array,
  ) {}

  get length(): number {
    return this.shape[this.shape.length - 1];
  }

  vector(...index: number[]): Float32Array {
    const row = index.reduce((place, at, axis) => place * this.shape[axis] + at, 0);
    return this.values.subarray(row * this.length, (row + 1) * this.length);
  }
}

const MISSING_VALUE = -32768;

/** Vectors as 16-bit integers with a step. */
export class CodedNumbers implements Numbers {
  private readonly codes: Int16Array;
  private readonly steps: Float32Array;
  private readonly perStep: number;

  constructor(
    readonly shape: readonly number[],
    axes: number,
    data: Uint8Array<ArrayBuffer>,
    steps: Uint8Array<ArrayBuffer>,
  ) {
    this.codes = new Int16Array(data.buffer, data.byteOffset, data.byteLength / 2);
    this.steps = new Float32Array(steps.buffer, steps.byteOffset, steps.byteLength / 4);
    this.perStep = shape.slice(axes).reduce((product, size) => product * size, 1);
  }

  get length(): number {
    return this.shape[this.shape.length - 1];
  }

  /** Vector along the last axis; NaN for masked or missing numbers. */
  vector(...index: number[]): Float32Array {
    let row = 0;
    for (let axis = 0; axis < index.length; axis++) row = row * this.shape[axis] + index[axis];
    const start = row * this.length;
    const vector = new Float32Array(this.length);
    const step = this.steps[Math.floor(start / this.perStep)];
    for (let i = 0; i < vector.length; i++) {
      const code = this.codes[start + i];
      vector[i] = code === MISSING_VALUE ? Number.NaN : code * step;
    }
    return vector;
  }
}
