// What ran, and the table of all rows.

import { h, table } from "../common/dom.js";
import { bytes, fixed, kNothing, milliseconds, shellWord, short } from "../common/format.js";
import { section, swatch } from "../common/parts.js";
import { linksOf, predictedCells } from "./cluster.js";
import { badge, measured, number, starNote } from "./context.js";

const distinct = (values) => [...new Set(values)];

function source(ctx, one, index) {
  const { t } = ctx;
  const row = ctx.rows.find((r) => r.source === index);
  const manifest = row?.run.manifest ?? {};
  const facts = [
    [t.model, manifest.job?.model], [t.data, manifest.job?.data],
    [t.version, manifest.version && `${manifest.version} (${manifest.commit})`],
    [t.hosts, distinct(Object.values(manifest.hosts ?? {})).join(t.listSep)],
    [t.processors, distinct(Object.values(manifest.processors ?? {})).join(t.listSep)],
    [t.link, manifest.link ?? t.noLink], [t.seed, manifest.seed],
  ];
  return h("div", {}, h("h3", {}, one.name, one.ended ? null : h("span", { class: "badge warn", style: "margin-left:8px" }, t.unfinished)),
    h("pre", {}, one.command.map((word, i) => [i ? " " : "", h("span", {}, shellWord(word))])),
    h("dl", {}, facts.filter(([, value]) => value !== undefined && value !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))])));
}

function glance(ctx) {
  const { t } = ctx;
  const rows = ctx.rows.filter((row) => row.run.summary);
  if (rows.length === 0) return null;
  const has = (name) => rows.some((row) => row.run.summary[name] != null);
  const compared = rows.some((row) => row.compare);
  const text = has("tokens_per_second");
  const metrics = distinct(rows.flatMap((row) => Object.keys(row.run.summary.own ?? {}))).filter((name) => name.startsWith("test_"));
  const links = linksOf(t, rows);
  const columns = [
    { title: t.strategy }, ...links.map((link) => ({ title: `${t.clusterMs} ${link}`, number: true })), { title: text ? t.tokens : t.samples, number: true }, { title: t.msStep, number: true },
    { title: t.exposedMs, number: true }, { title: t.workerPeak, number: true },
    ...(rows.some((row) => row.run.summary.server_peak_bytes) ? [{ title: t.serverPeak, number: true }] : []),
    ...(compared ? [{ title: t.equal }] : []), { title: t.finalLoss, number: true },
    ...(has("test_perplexity") ? [{ title: t.perplexity, number: true }] : []),
    ...(has("test_accuracy") ? [{ title: t.accuracy, number: true }] : []),
    ...metrics.map((name) => ({ title: name.slice(5), number: true })),
  ];
  const body = rows.map((row) => {
    const own = `rows.${row.index}.runs.0.summary.`;
    const median = (name, format) => measured(ctx, row, row.compare ? `rows.${row.index}.compare.${name}.median` : own + name, format);
    return [
      h("td", {}, swatch(row.colour), " ", row.label),
      ...predictedCells(ctx, row, links),
      text ? measured(ctx, row, own + "tokens_per_second", (v) => fixed(v, 0)) : median("samples_per_second", (v) => fixed(v, 0)),
      median("step_s", milliseconds), median("exposed_comm_s", milliseconds),
      number(ctx, own + "worker_peak_bytes", bytes),
      ...(columns.some((c) => c.title === t.serverPeak) ? [number(ctx, own + "server_peak_bytes", (v) => (v ? bytes(v) : kNothing))] : []),
      ...(compared ? [badge(ctx, row.compare?.equality) ?? kNothing] : []),
      number(ctx, own + "final_loss", short),
      ...(has("test_perplexity") ? [number(ctx, own + "test_perplexity", short)] : []),
      ...(has("test_accuracy") ? [number(ctx, own + "test_accuracy", short)] : []),
      ...metrics.map((name) => number(ctx, `${own}own.${name}`, short)),
    ];
  });
  const used = distinct(rows.map((row) => row.compare?.equality).filter((e) => e && e !== "—"));
  return [h("h3", {}, t.glance), table(columns, body), starNote(ctx, rows),
          used.map((e) => h("p", { class: "quiet" }, badge(ctx, e), " ", t.badges[e] ?? ""))];
}

export function ran(ctx) {
  const { t } = ctx;
  const repeats = Math.max(...ctx.rows.map((row) => row.runs.length));
  return section("ran", t.ranTitle, ctx.doc.sources.map((one, i) => source(ctx, one, i)), glance(ctx),
    repeats > 1 ? h("p", { class: "quiet" }, t.runsNote(repeats)) : null);
}
