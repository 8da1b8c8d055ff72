// Makes ../page/report.html of report.html, style.css and report/main.js: one file without references to others.
// node build.mjs [OUT]
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build, transform } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "..", "page", "report.html");

const bundle = await build({
  entryPoints: [join(here, "report", "main.js")],
  bundle: true,
  write: false,
  format: "iife",
  target: "es2020",
  charset: "utf8",
  minify: true,
  legalComments: "none",
});
const script = bundle.outputFiles[0].text.trimEnd();
const style = await transform(readFileSync(join(here, "style.css"), "utf8"), { loader: "css", minify: true });

// The policy lets the browser run this script and nothing else, and load nothing.
const hash = createHash("sha256").update(script).digest("base64");
const policy = `default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-${hash}'`;
const parts = { POLICY: policy, STYLE: style.code.trimEnd(), SCRIPT: script };
const page = readFileSync(join(here, "report.html"), "utf8").replace(/__(POLICY|STYLE|SCRIPT)__/g, (_, name) => parts[name]);
writeFileSync(out, page);
console.log(`${out}: ${page.length} characters`);
