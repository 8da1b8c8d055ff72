// Memory: booked by category against the prediction, and what the kernel says.

import { bars, lines } from "../common/charts.js";
import { h, table } from "../common/dom.js";
import { figure } from "../common/figure.js";
import { bytes, byteTicks, kNothing, short, whole } from "../common/format.js";
import { processName } from "../common/names.js";
import { keys, section } from "../common/parts.js";
import { choice, number } from "./context.js";
import { memoryWithin } from "./memory_within.js";

const kMostWithin = 6;
const kCategories = ["parameters", "gradients", "optimizer", "activations", "communication", "staging", "index"];

function processes(row) {
  const found = new Map();
  for (const check of row.run.summary.memory) found.set(check.role, [...(found.get(check.role) ?? []), check]);
  return [...found].map(([process, checks]) => ({ process, checks, sum: checks.reduce((sum, check) => sum + check.peak, 0) }));
}

/// The worker and the server with the largest sum.
function largest(list) {
  return ["worker", "server"].map((role) => list.filter((one) => one.process.startsWith(role)).reduce((a, b) => (a && a.sum >= b.sum ? a : b), null)).filter(Boolean);
}

/// The sum of all predictions; activations, which have none, count as measured. Null if something else has none.
function predicted(checks) {
  let sum = 0;
  let some = false;
  for (const check of checks) {
    if (check.predicted != null) some = true;
    else if (check.category !== "activations" && check.peak > 0) return null;
    sum += check.predicted ?? check.peak;
  }
  return some ? sum : null;
}

/// The processes whose memory was recorded, each with its colour.
const linesOf = (row) => Object.entries(row.run.memory_log).filter(([, one]) => one.time_s)
  .map(([process, one], i) => ({ process, one, colour: `var(--s${i % 8})`, dash: ["", "7 3", "2 3"][Math.floor(i / 8) % 3] || null }));

function curves(ctx, id, title, row, column) {
  const { t } = ctx;
  const log = linesOf(row).filter(({ one }) => one[column].some((v) => v != null));
  if (log.length === 0) return null;
  return figure({
    id, title: title + t.colon + row.label, texts: t, readout: true,
    draw: (width, say) => lines({
      width, height: 220, zero: true, xTitle: t.seconds, yTitle: "", xText: short, yText: bytes, yTicks: (least, most, count) => byteTicks(most, count), say,
      series: log.map(({ process, one, colour, dash }) => ({ name: processName(t, process), colour, dash, x: one.time_s, y: one[column] })),
    }),
    data: () => [["process", "time_s", "booked", "rss", "pss"], ...log.flatMap(({ process, one }) => one.time_s.map((v, i) => [process, v, one.booked[i], one.rss[i], one.pss[i]]))],
  });
}

/// The curves within one step, beside each other, so that stages can be compared.
function within(ctx, rows) {
  const { t } = ctx;
  const figures = rows.map((row) => memoryWithin(ctx, row)).filter(Boolean).slice(0, kMostWithin);
  if (figures.length === 0) return null;
  return [h("h3", {}, t.withinTitle), h("p", { class: "quiet" }, t.withinCaption),
    keys([["var(--parameters)", t.wholeParameters], ["var(--gradients)", t.wholeGradients]]), h("div", { class: "pair" }, figures)];
}

function system(ctx, row) {
  const { t } = ctx;
  const figures = row.run.summary.system_memory;
  if (!figures?.rss_peak) return null;
  const names = Object.keys(figures.rss_peak);
  const own = `rows.${row.index}.runs.0.summary.system_memory.`;
  return [h("h3", {}, t.system + t.colon + row.label),
    table([{ title: t.process }, { title: t.rss, number: true }, { title: t.pss, number: true }],
      names.map((name) => [processName(t, name), number(ctx, `${own}rss_peak.${name}`, bytes), number(ctx, `${own}pss_peak.${name}`, bytes)])),
    h("p", { class: "quiet" }, figures.pss_together_peak ? t.pssTogether(bytes(figures.pss_together_peak)) + " " : "", t.systemNote)];
}

export function memory(ctx) {
  const { t } = ctx;
  const rows = ctx.rows.filter((row) => row.run.summary?.memory?.length);
  if (rows.length === 0) return null;
  const { node, row } = choice(ctx, "memory", true, rows);
  const picked = row ? [row] : rows;
  const categories = kCategories.filter((name) => picked.some((one) => one.run.summary.memory.some((check) => check.category === name && check.peak > 0)));
  const group = (one) => ({
    name: one.label,
    bars: (row ? processes(one) : largest(processes(one))).map(({ process, checks, sum }) => ({
      name: processName(t, process), text: bytes(sum), mark: predicted(checks), markTitle: `${t.predicted} ${whole(predicted(checks))}`,
      parts: kCategories.map((name) => {
        const check = checks.find((c) => c.category === name);
        return { value: check?.peak, colour: `var(--${name})`, title: `${t.categories[name]} ${bytes(check?.peak)}` };
      }),
    })),
  });
  const detailed = row ?? rows.find((one) => processes(one).length > 1) ?? rows[0];
  const columns = [{ title: t.strategy }, { title: t.process }, { title: t.category }, { title: t.peak, number: true }, { title: t.predicted, number: true }, { title: t.difference, number: true }];
  const body = picked.flatMap((one) => one.run.summary.memory.map((check, i) => {
    const own = `rows.${one.index}.runs.0.summary.memory.${i}.`;
    const by = check.predicted == null ? null : check.peak - check.predicted;
    return [one.label, processName(t, check.role), t.categories[check.category] ?? check.category, number(ctx, own + "peak", whole), number(ctx, own + "predicted", whole),
      h("td", { class: `n ${by == null ? "" : by === 0 ? "good" : "bad"}` }, by == null ? kNothing : `${whole(by)} ${by === 0 ? "✓" : "✗"}`)];
  }));
  return section("memory", t.memoryTitle, node, keys(categories.map((name) => [`var(--${name})`, t.categories[name]])),
    figure({
      id: "memory-booked", title: t.memoryFigure, caption: t.memoryCaption, texts: t,
      draw: (width) => bars({ width, groups: picked.map(group), text: bytes, axisTicks: (least, most, count) => byteTicks(most, count) }),
      data: () => [["strategy", "process", "category", "peak", "predicted"], ...picked.flatMap((one) => one.run.summary.memory.map((check) => [one.label, check.role, check.category, check.peak, check.predicted]))],
    }),
    h("details", {}, h("summary", {}, t.table), table(columns, body)),
    within(ctx, picked),
    keys(linesOf(detailed).map((line) => [line.colour, processName(t, line.process)])),
    h("div", { class: "pair" }, curves(ctx, "memory-booked-curve", t.bookedCurve, detailed, "booked"), curves(ctx, "memory-pss-curve", t.memoryCurve, detailed, "pss")),
    system(ctx, detailed));
}
