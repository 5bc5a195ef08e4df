// From base64 text or gzipped bytes to plain bytes. No request is made.

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
