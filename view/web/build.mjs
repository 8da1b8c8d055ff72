// Makes ../page/report.html and ../page/step.html: each is one file without references to others.
// node build.mjs [FOLDER]
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build, transform } from "esbuild";

const kPages = [
  { name: "report", title: "psring report", styles: ["style.css"] },
  { name: "step", title: "psring step", styles: ["style.css", "step/style.css"] },
];

const here = dirname(fileURLToPath(import.meta.url));
const folder = process.argv[2] ?? join(here, "..", "page");
const text = (name) => readFileSync(join(here, name), "utf8");

async function make({ name, title, styles }) {
  const bundle = await build({
    entryPoints: [join(here, name, "main.js")],
    bundle: true,
    write: false,
    format: "iife",
    target: "es2020",
    charset: "utf8",
    minify: true,
    legalComments: "none",
  });
  const script = bundle.outputFiles[0].text.trimEnd();
  const style = await transform(styles.map(text).join(""), { loader: "css", minify: true });
  // The policy lets the browser run this script and nothing else, and load nothing.
  const hash = createHash("sha256").update(script).digest("base64");
  const policy = `default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-${hash}'`;
  const parts = { POLICY: policy, TITLE: title, STYLE: style.code.trimEnd(), SCRIPT: script };
  const page = text("page.html").replace(/__(POLICY|TITLE|STYLE|SCRIPT)__/g, (_, part) => parts[part]);
  writeFileSync(join(folder, `${name}.html`), page);
  console.log(`${name}.html: ${page.length} characters`);
}

for (const page of kPages) await make(page);
