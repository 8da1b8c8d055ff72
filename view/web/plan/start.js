// The command and the file that start the picked row's job.

import { h } from "../common/dom.js";
import { shellWord } from "../common/format.js";
import { section } from "../common/parts.js";

const quoted = (text) => (text.includes('"') ? `'${text}'` : `"${text}"`);

export function start(ctx) {
  const { t, state } = ctx;
  const row = ctx.rows[state.row];
  const options = Object.entries(row.options);
  const words = ["psring", "train", ...options.flatMap(([name, text]) => (text === "true" ? [`--${name}`] : [`--${name}`, text]))];
  return section("start", t.startTitle, h("p", { class: "quiet" }, t.startNote(row.label), row.hosts > 1 ? ` ${t.hostsStart(row.hosts)}` : ""),
    h("pre", { id: "start-command" }, words.map((word, i) => [i ? " " : "", h("span", {}, shellWord(word))])),
    h("details", {}, h("summary", {}, t.file), h("pre", { id: "start-file" }, options.map(([name, text]) => `${name} = ${quoted(text)}\n`))));
}
