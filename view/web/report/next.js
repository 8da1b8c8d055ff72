// What bounds each row, and what to try next.

import { h } from "../common/dom.js";
import { shellWord } from "../common/format.js";
import { section, swatch } from "../common/parts.js";
import { boundOf, changed, compared } from "./bound.js";

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

/// The comparison's own result.
function ofComparison(ctx, row) {
  const { t } = ctx;
  const { compare } = row;
  return card(ctx, row, { bound: compare.bound_by, because: compare.because, next: compare.next },
    row.next_command.length ? shell(row.next_command, ctx.doc.sources[row.source].command) : null,
    compare.not_comparable ? h("p", { class: "quiet" }, `${t.notComparable}${t.colon}${t.translate(compare.not_comparable)}`) : null);
}

/// The result for a run that was made by itself, from what its folder has.
function ofRun(ctx, row, found) {
  const { t } = ctx;
  const command = row.run.manifest.command ?? [];
  const trial = found.change ? changed(command, found.change) : [];
  const all = compared(command, row.run.manifest.job.strategy);
  return card(ctx, row, found, trial.length ? shell(trial, command) : null, all.length ? [h("p", { class: "quiet" }, t.compareNote), shell(all, command)] : null);
}

export function next(ctx) {
  const cards = ctx.rows.map((row) => {
    if (row.compare?.bound_by) return ofComparison(ctx, row);
    const found = row.compare ? null : boundOf(row.run);
    return found && ofRun(ctx, row, found);
  }).filter(Boolean);
  return cards.length === 0 ? null : section("next", ctx.t.nextTitle, h("div", { class: "cards" }, cards));
}
