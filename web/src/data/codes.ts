// Attention weights from their coarse and fine planes (src/headscope/page/codes.py).

export const LAST_CODE = 254;
export const MISSING_CODE = 255;
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

/** The planes of one block and the weights of any head in them. */
export class Planes {
  constructor(
    readonly shape: readonly [layers: number, heads: number, queries: number, keys: number],
    readonly coarse: Uint8Array,
    readonly fine: Uint8Array | null,
  ) {}

  /** Where a head's codes begin in the coarse plane. */
  offset(layerIndex: number, head: number): number {
    const [, heads, queries, keys] = this.shape;
    return (layerIndex * heads + head) * queries * keys;
  }

  /** `query key` weights of one head, row after row. */
  weights(layerIndex: number, head: number): Float32Array {
    const size = this.shape[2] * this.shape[3];
    const start = this.offset(layerIndex, head);
    const weights = new Float32Array(size);
    for (let i = 0; i < size; i++) {
      const at = start + i;
      const code = this.coarse[at];
      if (this.fine === null) {
        weights[i] = COARSE[code];
      } else {
        const pair = this.fine[at >> 1];
        weights[i] = FINE[(code << 4) | (at & 1 ? pair >> 4 : pair & 15)];
      }
    }
    return weights;
  }
}
