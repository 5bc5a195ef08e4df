// Real numbers from 16-bit integers (src/headscope/page/codec.py), a vector at a time.

const MISSING_VALUE = -32768;

export class Numbers {
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

  /** Length of the last axis. */
  get length(): number {
    return this.shape[this.shape.length - 1];
  }

  /** The last axis at the given indices of the others; NaN for masked or missing numbers. */
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
