// Trace request of the lab as a URL fragment, beside the selection.

import type { Input, TraceRequest } from "../data/backend.ts";

const NAMES = ["text", "pair", "target", "generate"] as const;

export function formatRequest(request: TraceRequest): string {
  const parts = [`model=${encodeURIComponent(request.model)}`];
  request.inputs.forEach((input, i) => {
    for (const name of NAMES) {
      const value = input[name];
      if (value) parts.push(`${name}${i ? i + 1 : ""}=${encodeURIComponent(value)}`);
    }
  });
  return parts.join("&");
}

/** Parse a request; null if the fragment names no text. */
export function parseRequest(fragment: string, usual: string): TraceRequest | null {
  const fields = new URLSearchParams(fragment.replaceAll("+", "%2B"));
  const input = (suffix: string): Input | null => {
    const text = fields.get(`text${suffix}`);
    if (!text) return null;
    const generate = Number(fields.get(`generate${suffix}`));
    const [pair, target] = ["pair", "target"].map((name) => fields.get(`${name}${suffix}`));
    return {
      text,
      ...(pair ? { pair } : {}),
      ...(target ? { target } : {}),
      ...(generate > 0 ? { generate } : {}),
    };
  };
  const first = input("");
  const second = input("2");
  if (!first) return null;
  const inputs = second ? [first, second] : [first];
  return { model: fields.get("model") ?? usual, inputs };
}
