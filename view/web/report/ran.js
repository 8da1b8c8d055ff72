// What ran, the table of all rows, and who owns which range.

import { badge, number, section, swatch } from "./context.js";
import { cut, label, svg, widthOf } from "./charts.js";
import { h, s, table } from "./dom.js";
import { figure } from "./figure.js";
import { bytes, fixed, kNothing, milliseconds, short } from "./format.js";

const kMostProcesses = 8;

const quoted = (word) => (/^[\w@%+=:,.\/-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`);
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
    h("pre", {}, one.command.map((word, i) => [i ? " " : "", h("span", {}, quoted(word))])),
    h("dl", {}, facts.filter(([, value]) => value !== undefined && value !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))])));
}

function glance(ctx) {
  const { t } = ctx;
  const rows = ctx.rows.filter((row) => row.run.summary);
  if (rows.length === 0) return null;
  const has = (name) => rows.some((row) => row.run.summary[name] != null);
  const compared = rows.some((row) => row.compare);
  const text = has("tokens_per_second");
  const columns = [
    { title: t.strategy }, { title: text ? t.tokens : t.samples, number: true }, { title: t.msStep, number: true },
    { title: t.exposedMs, number: true }, { title: t.workerPeak, number: true },
    ...(rows.some((row) => row.run.summary.server_peak_bytes) ? [{ title: t.serverPeak, number: true }] : []),
    ...(compared ? [{ title: t.equal }] : []), { title: t.finalLoss, number: true },
    ...(has("test_perplexity") ? [{ title: t.perplexity, number: true }] : []),
    ...(has("test_accuracy") ? [{ title: t.accuracy, number: true }] : []),
  ];
  const body = rows.map((row) => {
    const own = `rows.${row.index}.runs.0.summary.`;
    const median = (name, format) => number(ctx, row.compare ? `rows.${row.index}.compare.${name}.median` : own + name, format);
    return [
      h("td", {}, swatch(row.colour), " ", row.label),
      text ? number(ctx, own + "tokens_per_second", (v) => fixed(v, 0)) : median("samples_per_second", (v) => fixed(v, 0)),
      median("step_s", milliseconds), median("exposed_comm_s", milliseconds),
      number(ctx, own + "worker_peak_bytes", bytes),
      ...(columns.some((c) => c.title === t.serverPeak) ? [number(ctx, own + "server_peak_bytes", (v) => (v ? bytes(v) : kNothing))] : []),
      ...(compared ? [badge(ctx, row.compare?.equality) ?? kNothing] : []),
      number(ctx, own + "final_loss", short),
      ...(has("test_perplexity") ? [number(ctx, own + "test_perplexity", short)] : []),
      ...(has("test_accuracy") ? [number(ctx, own + "test_accuracy", short)] : []),
    ];
  });
  const used = distinct(rows.map((row) => row.compare?.equality).filter((e) => e && e !== "—"));
  return [h("h3", {}, t.glance), table(columns, body),
          used.map((e) => h("p", { class: "quiet" }, badge(ctx, e), " ", t.badges[e] ?? ""))];
}

const kColumns = [["parameters", "P"], ["gradients", "G"], ["optimizer", "OS"]];

function processes(own) {
  const list = [];
  const add = (role, count, parts) => {
    const shown = Math.min(count, kMostProcesses);
    for (let rank = 0; rank < shown; ++rank) list.push({ role, rank, states: own[role], part: rank % parts, parts });
    if (count > shown) list.push({ role, more: count - shown });
  };
  add("worker", own.workers, own.parts);
  if (own.server) add("server", own.servers, own.servers);
  return list;
}

function panel(ctx, row, x0, y0, width) {
  const { t } = ctx;
  const left = 8 + Math.max(widthOf(`${t.worker} 00`), row.ownership.server ? widthOf(`${t.server} 00`) : 0);
  const gap = 8;
  const bar = (width - left - 2 * gap) / 3;
  const nodes = [label(x0, y0 + 13, cut(row.label, width), { fill: "var(--text)", "font-weight": 600, "font-size": 13 })];
  kColumns.forEach(([, short], i) => nodes.push(label(x0 + left + i * (bar + gap) + bar / 2, y0 + 30, short, { "text-anchor": "middle" })));
  let y = y0 + 36;
  for (const one of processes(row.ownership)) {
    if (one.more) {
      nodes.push(label(x0, y + 12, t.more(one.more)));
      y += 20;
      continue;
    }
    nodes.push(label(x0 + left - 8, y + 11, `${t[one.role]} ${one.rank}`, { "text-anchor": "end" }));
    kColumns.forEach(([category], i) => {
      const x = x0 + left + i * (bar + gap);
      const state = one.states[category];
      const passing = state.includes("passing");
      const said = passing ? t.passing : "";
      nodes.push(s("rect", { x, y, width: bar, height: 14, fill: passing ? "url(#hatch)" : "none", stroke: "var(--line)" }, s("title", {}, said)));
      if (state === "whole") nodes.push(s("rect", { x, y, width: bar, height: 14, fill: `var(--${category})` }, s("title", {}, t.kept)));
      if (state.startsWith("range")) nodes.push(s("rect", { x: x + (one.part * bar) / one.parts, y, width: Math.max(1, bar / one.parts), height: 14, fill: `var(--${category})` }, s("title", {}, `${t.kept} ${one.part + 1}/${one.parts}`)));
    });
    y += 18;
  }
  return { nodes, height: y - y0 + 14 };
}

function diagram(ctx, rows, width) {
  const count = Math.max(1, Math.floor((width + 24) / 300));
  const each = Math.floor((width - (count - 1) * 24) / count);
  const nodes = [];
  let y = 0;
  for (let first = 0; first < rows.length; first += count) {
    const line = rows.slice(first, first + count).map((row, i) => panel(ctx, row, i * (each + 24), y, each));
    nodes.push(line.map((one) => one.nodes));
    y += Math.max(...line.map((one) => one.height));
  }
  return svg(width, y, s("defs", {}, s("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    s("line", { x1: 0, y1: 0, x2: 0, y2: 6, stroke: "var(--quiet)", "stroke-width": 1.6 }))), nodes);
}

export function ran(ctx) {
  const { t } = ctx;
  const drawn = ctx.rows.filter((row) => row.ownership);
  const unknown = ctx.rows.filter((row) => !row.ownership);
  const repeats = Math.max(...ctx.rows.map((row) => row.runs.length));
  const data = () => [["strategy", "process", ...kColumns.map(([name]) => name), "part", "parts"],
    ...drawn.flatMap((row) => processes(row.ownership).filter((one) => !one.more).map((one) =>
      [row.label, `${one.role} ${one.rank}`, ...kColumns.map(([name]) => one.states[name]), one.part, one.parts]))];
  return section("ran", t.ranTitle, ctx.doc.sources.map((one, i) => source(ctx, one, i)), glance(ctx),
    repeats > 1 ? h("p", { class: "quiet" }, t.runsNote(repeats)) : null,
    drawn.length ? figure({ id: "owners", title: t.ownTitle, caption: t.ownCaption, texts: t, data, draw: (width) => diagram(ctx, drawn, width) }) : null,
    unknown.length ? h("p", { class: "quiet" }, t.noOwnership(unknown.map((row) => row.label).join(t.listSep))) : null);
}
