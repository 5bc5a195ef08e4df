// Builds the entries into the Python package, and copies the runtime of live pages. Builds are
// reproducible: equal sources give equal bytes.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "../src/headscope/page/static");
const LIMIT = 170_000;
const RUNTIME = "onnxruntime-web";

const shared = {
  absWorkingDir: here,
  outdir: out,
  entryNames: "[name]",
  bundle: true,
  minify: true,
  write: false,
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
};
const pages = await build({
  ...shared,
  entryPoints: ["page", "widget", "app", "report", "live_page"].map(
    (name) => `src/entry/${name}.ts`,
  ),
  format: "esm",
  jsx: "automatic",
  jsxImportSource: "preact",
  loader: { ".css": "text" },
  plugins: [
    {
      // Style sheets are text inside the bundle: remove comments and white space.
      name: "plain-css",
      setup(setup) {
        setup.onLoad({ filter: /\.css$/ }, async (args) => {
          const css = await build({ entryPoints: [args.path], minify: true, write: false });
          return { contents: css.outputFiles[0].text.trim(), loader: "text" };
        });
      },
    },
  ],
});
// A worker made from text must be a classic script: module workers fail in pages on disk.
const worker = await build({
  ...shared,
  entryPoints: ["src/entry/live.ts"],
  format: "iife",
  define: { "import.meta.url": '""' },
});

/** Licenses of the bundled packages, as a comment; the runtime's package comes without its own. */
function noticeOf(...names) {
  const path = (name) =>
    name === RUNTIME ? `licenses/${name}.txt` : join("node_modules", name, "LICENSE");
  const text = (name) => readFileSync(join(here, path(name)), "utf-8").trim();
  return `/*!\n${names.map((name) => `${name}: ${text(name)}`).join("\n\n")}\n*/\n`;
}

mkdirSync(out, { recursive: true });
for (const file of [...pages.outputFiles, ...worker.outputFiles]) {
  const name = file.path.split(/[\\/]/).at(-1);
  const packages = name === "live.js" ? [RUNTIME] : ["preact", "@preact/signals"];
  const text = noticeOf(...packages) + file.text;
  const packed = gzipSync(text, { level: 9 }).length;
  writeFileSync(join(out, name), text);
  console.log(`${name.padEnd(10)} ${Buffer.byteLength(text)} bytes, ${packed} gzipped`);
  if (packed > LIMIT) {
    console.error(`${name} is over the limit of ${LIMIT} bytes gzipped`);
    process.exitCode = 1;
  }
}

const wasm = readFileSync(join(here, "node_modules", RUNTIME, "dist/ort-wasm-simd-threaded.wasm"));
const packed = gzipSync(wasm, { level: 9 });
packed[9] = 255; // the machine that packed it does not matter
writeFileSync(join(out, "ort.wasm.gz"), packed);
console.log(`ort.wasm.gz ${packed.length} bytes`);
