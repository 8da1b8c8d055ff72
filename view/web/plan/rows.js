// The rows of one point: bars of a step, and the table.

import { bars } from "../common/charts.js";
import { numberCell } from "../common/cells.js";
import { h, table } from "../common/dom.js";
import { figure } from "../common/figure.js";
import { bytes, fixed, milliseconds, plain, whole } from "../common/format.js";
import { keys, section } from "../common/parts.js";
import { barGroups } from "./context.js";

const kMostBars = 16;
const kColumns = ["label", "hosts", "step_s", "compute_s", "exposed_s", "bubble", "rate", "per_host", "sent_bytes", "process_bytes", "bound"];
const kFormats = { hosts: whole, step_s: milliseconds, compute_s: milliseconds, exposed_s: milliseconds, bubble: (v) => `${fixed(100 * v, 1)} %`, rate: plain, per_host: plain, sent_bytes: bytes, process_bytes: bytes };

/// A menu of the points whose rows can be shown.
export function pointChoice(ctx) {
  const { t, state, doc } = ctx;
  if (state.points.length < 2) return null;
  const option = t.options[doc.sweep] ?? doc.sweep;
  return h("div", { class: "choose" }, h("label", { for: "choose-point" }, t.show + t.colon.trim()),
    h("select", { id: "choose-point", onchange: (event) => ctx.change(() => {
      state.at = Number(event.target.value);
      state.row = 0;
    }, "choose-point") }, state.points.map((one, i) => h("option", { value: i, selected: i === state.at }, one.value === null ? t.planned : `${option} = ${one.value}`))));
}

function nameCell(ctx, row, index) {
  const { t, state } = ctx;
  const id = `row-${index}`;
  return h("td", {}, h("button", { type: "button", id, class: "name", "aria-pressed": String(state.row === index), onclick: () => ctx.change(() => {
    state.row = index;
  }, id) }, row.label),
  row.inexact ? h("span", { class: "badge warn", title: t.inexactNote }, t.inexact) : null,
  row.fits ? null : h("span", { class: "badge bad" }, t.tooLarge));
}

export function rows(ctx) {
  const { t, state } = ctx;
  const few = ctx.rows.slice(0, kMostBars);
  const rest = ctx.rows.slice(kMostBars);
  const stages = ctx.rows.some((row) => row.mesh.pipeline > 1);
  const columns = kColumns.filter((name) => stages || name !== "bubble");
  const unit = ctx.rate === "tokens_per_s" ? t.tokens : t.samples;
  const title = (name) => (name === "rate" || name === "per_host" ? t.ofUnit(unit, t.columns[name]) : t.columns[name]);
  const key = (name) => (name === "rate" ? ctx.rate : name);
  const cell = (row, index, name) => {
    if (name === "label") return nameCell(ctx, row, index);
    if (name === "bubble" && row.mesh.pipeline === 1) return "";
    if (name === "bound") return t.bounds[row.bound] ?? row.bound;
    return numberCell(ctx.doc, `${ctx.path}rows.${index}.${key(name)}`, kFormats[name]);
  };
  const bar = (row) => ({
    name: row.label, text: `${plain(row.step_s * 1000)} ms`,
    parts: [{ value: row.compute_s, colour: "var(--compute)", title: `${t.computing} ${milliseconds(row.compute_s)} ms` },
      { value: row.exposed_s, colour: "var(--exposed)", title: `${t.exposed} ${milliseconds(row.exposed_s)} ms` },
      ...(row.bubble > 0 ? [{ value: row.bubble * row.step_s, colour: "var(--bubble)", title: `${t.bubble} ${milliseconds(row.bubble * row.step_s)} ms` }] : [])],
  });
  const tableOf = (list, first) => table(columns.map((name) => ({ title: title(name), number: name !== "label" && name !== "bound" })),
    list.map((row, i) => columns.map((name) => cell(row, first + i, name))));
  return section("rows", t.rowsTitle, pointChoice(ctx),
    keys([["var(--compute)", t.computing], ["var(--exposed)", t.exposed], ...(stages ? [["var(--bubble)", t.bubble]] : [])]),
    figure({
      id: "rows-step", title: t.rowsFigure, texts: t, caption: t.rowsCaption,
      draw: (width) => bars({ width, groups: barGroups(few.map(bar), width), text: (v) => `${plain(v * 1000)} ms` }),
      data: () => [columns.map(key), ...ctx.rows.map((row) => columns.map((name) => row[key(name)]))],
    }),
    tableOf(few, 0),
    rest.length === 0 ? null : h("details", { id: "rows-all", open: state.allRows, ontoggle: (event) => { state.allRows = event.target.open; } },
      h("summary", {}, t.more(rest.length)), tableOf(rest, few.length)),
    h("p", { class: "quiet" }, t.hostsNote));
}
