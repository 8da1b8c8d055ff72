// What bounds each row, and what to try next.

import { h } from "../common/dom.js";
import { shellWord } from "../common/format.js";
import { section, swatch } from "../common/parts.js";

/// Writes a command; words that differ from those of the command `from` stand out.
function shell(words, from) {
  const known = (word, i) => {
    const before = words[i - 1];
    if (word.startsWith("--") || !before?.startsWith("--")) return from.includes(word);
    return from[from.indexOf(before) + 1] === word && from.includes(before);
  };
  return h("pre", {}, words.map((word, i) => [i ? " " : "", h("span", { class: known(word, i) ? null : "new" }, shellWord(word))]));
}

function card(ctx, row, { bound, because, next }, ...more) {
  const { t } = ctx;
  return h("div", { class: "card" },
    h("h3", {}, h("span", {}, swatch(row.colour), " ", row.label), h("span", { class: "badge", title: t.boundBy }, t.bounds[bound] ?? bound)),
    h("p", {}, t.translate(because)),
    next ? h("p", {}, h("strong", {}, t.tryNext + t.colon), t.translate(next)) : null,
    more);
}

/// Options that belong to one run: its folder, its faults, and who watches it.
const kOwnOptions = ["--out", "--fault", "--resume", "--live"];

/// Returns the words without an option and its value.
function without(words, flag) {
  const at = words.findIndex((word) => word === flag || word.startsWith(`${flag}=`));
  if (at < 0) return words;
  const valued = words[at] === flag && at + 1 < words.length && !words[at + 1].startsWith("--");
  return without([...words.slice(0, at), ...words.slice(at + (valued ? 2 : 1))], flag);
}

/// Returns the command that compares a run with other strategies; empty if the run was not made by train.
function compared(command, strategy) {
  if (command[1] !== "train") return [];
  const others = ["ddp", "ps", "ps-async"].filter((one) => one !== strategy);
  const options = ["--strategy", ...kOwnOptions].reduce(without, command.slice(2));
  return [command[0], "compare", "--strategies", [strategy, ...others].join(","), ...options];
}

/// The result that a comparison or a run recorded.
function result(ctx, row, bound) {
  const { t } = ctx;
  const { command } = ctx.doc.sources[row.source];
  const all = row.compare ? [] : compared(command, row.run.manifest.job.strategy);
  return card(ctx, row, { bound: bound.bound_by, because: bound.because, next: bound.next },
    row.next_command.length ? shell(row.next_command, command) : null,
    bound.not_comparable ? h("p", { class: "quiet" }, `${t.notComparable}${t.colon}${t.translate(bound.not_comparable)}`) : null,
    all.length ? [h("p", { class: "quiet" }, t.compareNote), shell(all, command)] : null);
}

export function next(ctx) {
  const cards = ctx.rows.map((row) => {
    const bound = row.compare ?? row.run.summary?.bound;
    return bound?.bound_by ? result(ctx, row, bound) : null;
  }).filter(Boolean);
  return cards.length === 0 ? null : section("next", ctx.t.nextTitle, h("div", { class: "cards" }, cards));
}
