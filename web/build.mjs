// Builds the four entries into the Python package. Builds are reproducible: equal sources give
// equal bytes.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "../src/headscope/page/static");
const LIMIT = 170_000;

const result = await build({
  absWorkingDir: here,
  entryPoints: ["page", "widget", "app", "report"].map((name) => `src/entry/${name}.ts`),
  outdir: out,
  entryNames: "[name]",
  bundle: true,
  minify: true,
  write: false,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "utf8",
  legalComments: "none",
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

// Licenses of the bundled packages.
const licenses = ["preact", "@preact/signals"].map(
  (name) => `${name}: ${readFileSync(join(here, "node_modules", name, "LICENSE"), "utf-8").trim()}`,
);
const notice = `/*!\n${licenses.join("\n\n")}\n*/\n`;

mkdirSync(out, { recursive: true });
for (const file of result.outputFiles) {
  const name = file.path.split(/[\\/]/).at(-1);
  const text = notice + file.text;
  const packed = gzipSync(text, { level: 9 }).length;
  writeFileSync(join(out, name), text);
  console.log(`${name.padEnd(10)} ${Buffer.byteLength(text)} bytes, ${packed} gzipped`);
  if (packed > LIMIT) {
    console.error(`${name} is over the limit of ${LIMIT} bytes gzipped`);
    process.exitCode = 1;
  }
}
