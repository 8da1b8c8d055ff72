// Makes ../page/report.html, step.html, plan.html and live.html: each is one file without references to others.
// node build.mjs [FOLDER]
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build, transform } from "esbuild";

// A page holds its data, but for the live one, which asks its own server.
const kData = '<script type="application/json" id="data">__PSRING_DATA__</script>\n';
const kPages = [
  { name: "report", title: "psring report", styles: ["style.css"], data: kData },
  { name: "step", title: "psring step", styles: ["style.css", "step/style.css"], data: kData },
  { name: "plan", title: "psring plan", styles: ["style.css", "plan/style.css"], data: kData },
  { name: "live", title: "psring live", styles: ["style.css", "live/style.css"], connect: "; connect-src 'self'" },
];

const here = dirname(fileURLToPath(import.meta.url));
const folder = process.argv[2] ?? join(here, "..", "page");
const text = (name) => readFileSync(join(here, name), "utf8");

async function make({ name, title, styles, data = "", connect = "" }) {
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
  // The policy lets the browser run this script and nothing else, and load nothing but a live page's states.
  const hash = createHash("sha256").update(script).digest("base64");
  const policy = `default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-${hash}'${connect}`;
  const parts = { POLICY: policy, DATA: data, TITLE: title, STYLE: style.code.trimEnd(), SCRIPT: script };
  const page = text("page.html").replace(/__(POLICY|TITLE|STYLE|DATA|SCRIPT)__/g, (_, part) => parts[part]);
  writeFileSync(join(folder, `${name}.html`), page);
  console.log(`${name}.html: ${page.length} characters`);
}

for (const page of kPages) await make(page);
