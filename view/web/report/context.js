// What all sections share: the document, the texts, colours of rows, and cells whose number comes from the document.

import { numberCell } from "../common/cells.js";
import { h } from "../common/dom.js";
import { en } from "./texts/en.js";
import { zh } from "./texts/zh.js";

export function makeContext(doc, language, picks, again) {
  const rows = doc.rows.map((row, index) => ({ ...row, index, run: row.runs[0], colour: `var(--s${index % 8})`, dash: ["", "7 3", "2 3", "9 3 2 3"][Math.floor(index / 8) % 4] || null }));
  return { doc, rows, t: { en, zh }[language], language, picks, again };
}

/// Returns a cell with the number at a path of the document, such as rows.0.runs.0.summary.steps.
export const number = (ctx, path, format) => numberCell(ctx.doc, path, format);

/// Why the times of a row, or a prediction, cannot be compared with another's; "" if they can.
const notComparable = (one) => (one.compare ?? one.run?.summary?.bound ?? one).not_comparable ?? "";
export const star = (one) => (notComparable(one) ? "*" : "");

/// Returns the cell of a time or rate of a row or a prediction, with a star if it is not comparable.
export function measured(ctx, one, path, format) {
  const cell = number(ctx, path, format);
  if (star(one)) cell.append(h("span", { title: ctx.t.translate(notComparable(one)) }, star(one)));
  return cell;
}

/// The note on the stars of these rows, if any has one.
export const starNote = (ctx, rows) => (rows.some((row) => star(row) || row.compare?.predicted?.some(star)) ? h("p", { class: "quiet" }, ctx.t.starNote) : null);

/// Returns a menu of all rows, and "all" if `all` is given; its choice lasts over languages.
export function choice(ctx, id, all, rows = ctx.rows) {
  const options = [...(all ? [["all", ctx.t.all]] : []), ...rows.map((row) => [String(row.index), row.label])];
  const picked = ctx.picks[id] ?? options[0]?.[0];
  const select = h("select", { id: `choose-${id}`, onchange: (event) => ctx.again(id, event.target.value) },
    options.map(([value, text]) => h("option", { value, selected: value === picked }, text)));
  const node = rows.length > 1 ? h("div", { class: "choose" }, h("label", { for: `choose-${id}` }, ctx.t.show + ctx.t.colon.trim()), select) : null;
  return { node, row: picked === "all" ? null : ctx.rows[Number(picked)] };
}

export const badge = (ctx, equality) => equality == null || equality === "—" ? null
  : h("span", { class: `badge ${equality === "=" ? "good" : equality === "✗" ? "bad" : equality === "≈" ? "" : "warn"}`, title: ctx.t.badges[equality] ?? "" }, ctx.t.badgeTexts[equality] ?? equality);
