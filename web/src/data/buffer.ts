// From base64 text or gzipped bytes to plain bytes, a buffer at a time. No request is made.

import { PayloadError } from "./payload.ts";

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

/** A numbered buffer of a payload, unpacked and of the length it should have. */
export type Take = (index: number, bytes: number) => Promise<Uint8Array<ArrayBuffer>>;

/** Unpacks buffers when they are asked for. `read` gives the packed bytes of one, null for none. */
export function takeFrom(read: (index: number) => Uint8Array<ArrayBuffer> | null): Take {
  return async (index, bytes) => {
    const packed = read(index);
    const found = packed ? await gunzip(packed) : null;
    if (found?.length !== bytes) {
      throw new PayloadError(
        `The data of this page is cut off or damaged: block ${index} has ` +
          `${found?.length ?? 0} bytes, expected ${bytes}.`,
      );
    }
    return found;
  };
}
