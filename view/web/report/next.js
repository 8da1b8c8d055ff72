// What bounds each row, and what to try next.

import { h } from "../common/dom.js";
import { shellWord } from "../common/format.js";
import { section, swatch } from "../common/parts.js";

export function next(ctx) {
  const { t } = ctx;
  const rows = ctx.rows.filter((row) => row.compare?.bound_by);
  if (rows.length === 0) return null;
  return section("next", t.nextTitle, h("div", { class: "cards" }, rows.map((row) => {
    const { compare } = row;
    return h("div", { class: "card" },
      h("h3", {}, h("span", {}, swatch(row.colour), " ", row.label), h("span", { class: "badge", title: t.boundBy }, t.bounds[compare.bound_by] ?? compare.bound_by)),
      h("p", {}, t.translate(compare.because)),
      compare.next ? h("p", {}, h("strong", {}, `${t.tryNext}: `), t.translate(compare.next)) : null,
      row.next_command.length ? h("pre", {}, row.next_command.map(shellWord).join(" ")) : null,
      compare.not_comparable ? h("p", { class: "quiet" }, `${t.notComparable}: ${t.translate(compare.not_comparable)}`) : null);
  })));
}
