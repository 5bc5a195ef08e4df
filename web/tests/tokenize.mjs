// Reads lines of JSON: a tokenizer as pages carry it, then texts. Writes what the page makes of each
// text: ids, offsets in code points, tokens, words.
import { readFileSync } from "node:fs";
import { build } from "esbuild";

const bundle = await build({
  entryPoints: [new URL("../src/data/tokenizer.ts", import.meta.url).pathname],
  bundle: true,
  write: false,
  format: "esm",
});
const code = Buffer.from(bundle.outputFiles[0].contents).toString("base64");
const { Tokenizer } = await import(`data:text/javascript;base64,${code}`);

const [file, ...texts] = readFileSync(0, "utf-8")
  .trimEnd()
  .split("\n")
  .map((line) => JSON.parse(line));
const tokenizer = new Tokenizer(file);
console.log(JSON.stringify({ failures: tokenizer.failures }));
for (const text of texts) {
  const points = (units) => [...text.slice(0, units)].length;
  const { offsets } = tokenizer.encode(text);
  const { ids, tokens } = tokenizer.read(text);
  const places = offsets.map((span) => span.map(points));
  console.log(JSON.stringify({ ids, offsets: places, ...tokens }));
}
