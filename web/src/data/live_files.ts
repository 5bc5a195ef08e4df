// Files of a live page, read and checked by their hashes; messages between the page and its worker.

import type { LiveFile, LiveTensor } from "../../generated/payload.ts";
import { bytesOfBase64 } from "./decode.ts";

/** File of a live page: an address, or the text of an element in base64. */
export interface Source {
  readonly file: LiveFile;
  readonly url: string;
  readonly text: string | null;
}

/** Input of the graph; `values` are those of a stored image. */
export type Feed = Omit<LiveTensor, "data"> & { readonly values: Float32Array | null };

/** Inputs of the graph. */
export interface GraphInputs {
  readonly feeds: readonly Feed[];
  /** Factor on each head's output, `batch layer head`, layers of all blocks. */
  readonly gates: Float32Array;
  readonly gateShape: readonly [batch: number, layers: number, heads: number];
  readonly rows: readonly number[] | null;
  /** Row of the layer, head, query and key of each weight that is set, then the weights. */
  readonly cells: readonly (readonly [number, number, number, number])[];
  readonly cellWeights: readonly number[];
  readonly hasTypes: boolean;
  /** Names of the outputs to return. */
  readonly wanted: readonly string[];
}

export type WorkerRequest =
  | {
      readonly kind: "load";
      readonly wasm: Source;
      readonly parts: readonly Source[];
      /** Size of the model, unpacked. */
      readonly bytes: number;
    }
  | { readonly kind: "run"; readonly inputs: GraphInputs };

export type WorkerReply =
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number; readonly error: string }
  | { readonly read: number };

/** File that cannot be read; the page shows the message. */
export class FileError extends Error {}

const CACHE = "headscope-live";

/** Read a file and check its hash; `follow` gets the number of bytes as they arrive. */
export async function readSource(
  { file, url, text }: Source,
  follow: (bytes: number) => void = () => {},
): Promise<Uint8Array<ArrayBuffer>> {
  if (text !== null) {
    const bytes = bytesOfBase64(text);
    follow(bytes.length);
    return checked(bytes, file);
  }
  if (url.startsWith("file:")) {
    throw new FileError("a page on disk cannot read its folder: open it over http");
  }
  const key = `${url}?sha256=${file.sha256}`;
  // Insecure addresses have no cache of their own; the browser's cache remains.
  const cache = await globalThis.caches?.open(CACHE).catch(() => null);
  const stored = await cache?.match(key);
  if (stored) return checked(await received(stored, file, follow), file);
  let response: Response;
  try {
    response = await fetch(url);
  } catch {
    throw new FileError(`${file.name} cannot be reached`);
  }
  if (!response.ok) throw new FileError(`${file.name}: the server answered ${response.status}`);
  const bytes = await checked(await received(response, file, follow), file);
  await cache?.put(key, new Response(bytes)).catch(() => {}); // a full disk stores nothing
  return bytes;
}

async function received(
  response: Response,
  { name, bytes: size }: LiveFile,
  follow: (bytes: number) => void,
): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(size);
  const reader = response.body!.getReader();
  let count = 0;
  for (;;) {
    const { done, value } = await reader.read().catch(() => {
      throw new FileError(`${name} was interrupted`);
    });
    if (done) break;
    if (count + value.length > size) throw new FileError(`${name} is damaged (too long)`);
    bytes.set(value, count);
    count += value.length;
    follow(value.length);
  }
  return bytes.subarray(0, count);
}

async function checked(
  bytes: Uint8Array<ArrayBuffer>,
  { name, bytes: size, sha256 }: LiveFile,
): Promise<Uint8Array<ArrayBuffer>> {
  if (bytes.length !== size || (await hashOf(bytes)) !== sha256) {
    throw new FileError(`${name} is damaged`);
  }
  return bytes;
}

/** SHA-256 in hexadecimal digits; by own code where the address is not secure. */
async function hashOf(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const digest = globalThis.crypto?.subtle
    ? new Uint8Array(await crypto.subtle.digest("SHA-256", bytes))
    : sha256(bytes);
  return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** First 32 bits of the fractional part of a root of a prime. */
const fraction = (root: number) => ((root - Math.floor(root)) * 2 ** 32) | 0;
const PRIMES = (() => {
  const primes: number[] = [];
  for (let n = 2; primes.length < 64; n++) if (primes.every((p) => n % p)) primes.push(n);
  return primes;
})();
const ROUNDS = Int32Array.from(PRIMES, (prime) => fraction(Math.cbrt(prime)));
const START = PRIMES.slice(0, 8).map((prime) => fraction(Math.sqrt(prime)));

/** SHA-256 (FIPS 180-4, section 6.2). */
export function sha256(bytes: Uint8Array): Uint8Array {
  const state = Int32Array.from(START);
  const words = new Int32Array(64);
  const tail = new Uint8Array(((bytes.length + 9 + 63) & ~63) - (bytes.length & ~63));
  tail.set(bytes.subarray(bytes.length & ~63));
  tail[bytes.length & 63] = 0x80;
  new DataView(tail.buffer).setBigUint64(tail.length - 8, BigInt(bytes.length) * 8n);
  const turn = (x: number, by: number) => (x >>> by) | (x << (32 - by));
  const add = (block: Uint8Array, start: number) => {
    for (let t = 0; t < 16; t++) {
      const i = start + 4 * t;
      words[t] = (block[i] << 24) | (block[i + 1] << 16) | (block[i + 2] << 8) | block[i + 3];
    }
    for (let t = 16; t < 64; t++) {
      const [x, y] = [words[t - 15], words[t - 2]];
      const small = turn(x, 7) ^ turn(x, 18) ^ (x >>> 3);
      const large = turn(y, 17) ^ turn(y, 19) ^ (y >>> 10);
      words[t] = (words[t - 16] + small + words[t - 7] + large) | 0;
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let t = 0; t < 64; t++) {
      const one = turn(e, 6) ^ turn(e, 11) ^ turn(e, 25);
      const first = (h + one + ((e & f) ^ (~e & g)) + ROUNDS[t] + words[t]) | 0;
      const two = turn(a, 2) ^ turn(a, 13) ^ turn(a, 22);
      const second = (two + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((value, i) => {
      state[i] += value;
    });
  };
  for (let start = 0; start + 64 <= bytes.length; start += 64) add(bytes, start);
  for (let start = 0; start < tail.length; start += 64) add(tail, start);
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, i) => {
    digest.setInt32(4 * i, word);
  });
  return new Uint8Array(digest.buffer);
}
