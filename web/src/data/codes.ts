// Attention weights from their coarse and fine planes (src/headscope/page/codec.py).

const LAST_CODE = 254;
const MISSING_CODE = 255;
const FIRST_FINE_CODE = 24;
const FINE_LEVELS = 16;

/** Weight of each coarse code; NaN, which is above nothing, for missing. */
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

/** The planes of one layer and the weights of any head in them. */
export class Planes {
  constructor(
    readonly shape: readonly [heads: number, queries: number, keys: number],
    readonly coarse: Uint8Array,
    readonly fine: Uint8Array | null,
  ) {}

  /** `query key` weights of one head, row after row. */
  weights(head: number): Float32Array {
    const size = this.shape[1] * this.shape[2];
    const weights = new Float32Array(size);
    for (let i = 0; i < size; i++) weights[i] = this.at(head * size + i);
    return weights;
  }

  weight(head: number, query: number, key: number): number {
    const [, queries, keys] = this.shape;
    return this.at((head * queries + query) * keys + key);
  }

  private at(place: number): number {
    const code = this.coarse[place];
    if (this.fine === null) return COARSE[code];
    const pair = this.fine[place >> 1];
    return FINE[(code << 4) | (place & 1 ? pair >> 4 : pair & 15)];
  }
}
