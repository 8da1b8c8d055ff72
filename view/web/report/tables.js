// Tables: the rows of each owner, the keys with the most updates, and how many different keys a batch has.

import { bars } from "../common/charts.js";
import { h, table } from "../common/dom.js";
import { figure } from "../common/figure.js";
import { bytes, fixed, whole } from "../common/format.js";
import { processName } from "../common/names.js";
import { section } from "../common/parts.js";
import { choice, number } from "./context.js";

const kFeatureShift = 56n;  // in a table of several features a key is the feature's number, and the id in 56 bits
const kIds = (1n << kFeatureShift) - 1n;
const kMostDigits = 9;  // longer ids are hashes, which are read in hexadecimal

const percent = (part, all, digits = 1) => (all > 0 ? `${fixed((100 * part) / all, digits)} %` : "");
const sum = (list, field) => list.reduce((total, one) => total + one[field], 0);

/// Returns a key as its user wrote it.
function keyText(t, one, key) {
  const full = BigInt(key);
  const text = (id) => (id < 10n ** BigInt(kMostDigits) ? id.toString() : `0x${id.toString(16)}`);
  return one.fused ? `${t.feature} ${full >> kFeatureShift}${t.listSep}${text(full & kIds)}` : text(full);
}

/// Returns the payload of an operation of rows that a process sent or received, of all tables; null if it is not known.
function moved(row, process, operation, side) {
  return row.run.traffic ? row.run.traffic.filter((line) => line[side] === process && line[2] === operation).reduce((total, line) => total + line[3], 0) : null;
}

function owners(ctx, row) {
  const { t } = ctx;
  const groups = row.run.tables.map((one) => ({
    name: one.name,
    bars: one.owners.map((owner) => ({ name: processName(t, owner.process), text: `${whole(owner.rows)} · ${percent(owner.rows, sum(one.owners, "rows"))}`,
      parts: [{ value: owner.rows, colour: "var(--parameters)", title: `${t.rows} ${whole(owner.rows)}` }] })),
  }));
  return figure({
    id: "table-rows", title: t.rowsFigure + t.colon + row.label, caption: t.rowsCaption, texts: t,
    draw: (width) => bars({ width, groups, text: whole }),
    data: () => [["table", "process", "rows", "updates", "busy_s"], ...row.run.tables.flatMap((one) => one.owners.map((owner) => [one.name, owner.process, owner.rows, owner.updates, owner.busy_s]))],
  });
}

function ownerTable(ctx, row) {
  const { t } = ctx;
  const columns = [{ title: t.tableName }, { title: t.process }, ...[t.rows, t.rowUpdates].map((title) => ({ title, number: true }))];
  const body = row.run.tables.flatMap((one, at) => one.owners.map((owner, i) => {
    const own = `rows.${row.index}.runs.0.tables.${at}.owners.${i}.`;
    return [one.name, processName(t, owner.process), number(ctx, own + "rows", whole), number(ctx, own + "updates", whole)];
  }));
  const servers = row.run.tables[0].owners.filter((owner) => owner.process.startsWith("server"));
  const work = servers.length === 0 ? null : table(
    [{ title: t.process }, ...[t.keysAsked, t.rowBytesOut, t.rowBytesIn, t.busySeconds].map((title) => ({ title, number: true }))],
    servers.map((owner) => [processName(t, owner.process),
      ...[["rows_pull", 1], ["rows", 0], ["rows_push", 1]].map(([operation, side]) => h("td", { class: "n" }, bytes(moved(row, owner.process, operation, side)))),
      h("td", { class: "n" }, fixed(owner.busy_s, 2))]));
  return [table(columns, body), work];
}

function hotKeys(ctx, row) {
  const { t } = ctx;
  const list = row.run.tables.flatMap((one, at) => one.hot.map((hot, i) => ({ one, at, hot, i })));
  return h("details", { open: true }, h("summary", {}, t.hotFigure + t.colon + row.label), h("p", { class: "quiet" }, t.hotCaption), table(
    [{ title: t.tableName }, { title: t.hotKey }, { title: t.ownerOf }, { title: t.updates, number: true }, { title: t.shareOfUpdates, number: true }],
    list.map(({ one, at, hot, i }) => [one.name, keyText(t, one, hot.key), processName(t, hot.process),
      number(ctx, `rows.${row.index}.runs.0.tables.${at}.hot.${i}.updates`, whole), h("td", { class: "n" }, percent(hot.updates, sum(one.owners, "updates"), 2))])));
}

function uniqueKeys(ctx, row) {
  const { t } = ctx;
  const list = row.run.tables.flatMap((one) => one.workers.map((worker) => ({ one, worker })));
  if (list.length === 0) return null;
  const cell = (text) => h("td", { class: "n" }, text);
  return table(
    [{ title: t.tableName }, { title: t.process }, ...[t.batches, t.lookups, t.uniqueKeys, t.mostUnique, t.sentOnce].map((title) => ({ title, number: true }))],
    list.map(({ one, worker }) => [one.name, processName(t, worker.process), cell(whole(worker.batches)), cell(fixed(worker.lookups / worker.batches, 1)),
      cell(fixed(worker.keys / worker.batches, 1)), cell(whole(worker.most_keys)), cell(fixed(worker.lookups / worker.keys, 2))]));
}

export function tables(ctx) {
  const { t } = ctx;
  const rows = ctx.rows.filter((row) => row.run.tables?.length);
  if (rows.length === 0) return null;
  const { node, row: chosen } = choice(ctx, "tables", false, rows);
  const row = rows.includes(chosen) ? chosen : rows[0];
  return section("tables", t.tablesTitle, node, h("p", { class: "quiet" }, t.tablesNote), owners(ctx, row), ownerTable(ctx, row), uniqueKeys(ctx, row), hotKeys(ctx, row));
}
