// Comparisons of one option's values: time over the option, and memory over the number of workers.

import { lines } from "../common/charts.js";
import { h, table } from "../common/dom.js";
import { figure } from "../common/figure.js";
import { bytes, byteTicks, fixed, kNothing, milliseconds, short, whole } from "../common/format.js";
import { section } from "../common/parts.js";
import { number } from "./context.js";

const colour = (i) => `var(--s${i % 8})`;
const some = (values) => values.some((v) => v != null);

/// Sizes and rates as people write them; all other values as they are.
function valueText(option, x) {
  if (option === "bucket_bytes") return bytes(x);
  if (option !== "link") return whole(x);
  return x >= 1e9 ? `${short(x / 1e9)} Gbit/s` : `${short(x / 1e6)} Mbit/s`;
}

const marks = (series) => [...new Set(series.flatMap((one) => one.x))].sort((a, b) => a - b);
const isLog = (list) => list.at(-1) / list[0] >= 8;

function timeFigure(ctx, sweep, index) {
  const { t } = ctx;
  const { option, series } = sweep;
  const inMs = (values) => values.map((v) => (v == null ? null : v * 1000));
  const xMarks = marks(series);
  const curves = series.flatMap((one, i) => {
    const base = { colour: colour(i), x: one.x };
    const link = one.link_s;
    return [{ ...base, name: one.label, y: inMs(one.step_s), low: inMs(one.least_s), high: inMs(one.most_s), marks: true },
      some(one.predicted_s) ? { ...base, name: `${one.label}, ${t.predicted}`, y: inMs(one.predicted_s), dash: "6 4", width: 1.5 } : null,
      some(link) ? { ...base, name: `${one.label}, ${t.linkAlone}`, y: inMs(link), dash: "2 3", width: 1.5 } : null].filter(Boolean);
  });
  const notes = [series.some((one) => some(one.predicted_s)) ? t.sweepPredicted : "", series.some((one) => some(one.link_s)) ? t.sweepLink : ""];
  return figure({
    id: `sweep-time-${index}`, title: t.sweepTime(t.options[option] ?? option), caption: [t.sweepTimeCaption, ...notes].join(" "), texts: t, readout: true,
    draw: (width, say) => lines({ width, zero: true, series: curves, xMarks, xLog: isLog(xMarks), xTitle: t.options[option] ?? option, yTitle: t.msStep, xText: (v) => valueText(option, v), yText: short, say }),
    data: () => [["strategy", option, "step_s", "least_s", "most_s", "predicted_s", "link_s"],
      ...series.flatMap((one) => one.value.map((value, i) => [one.label, value, one.step_s[i], one.least_s[i], one.most_s[i], one.predicted_s[i], one.link_s[i]]))],
  });
}

function limitText(t, memory) {
  if (memory.limit === undefined) return kNothing;
  if (memory.limit === 0) return t.nTimes;
  return `${fixed(memory.ratio, 2).replace(/\.?0+$/, "")} ×`;
}

function memoryFigure(ctx, sweep, index) {
  const { t } = ctx;
  const list = sweep.series.filter((one) => one.memory && some(one.memory.measured));
  if (list.length === 0) return null;
  const xMarks = marks(list);
  const curves = list.flatMap((one, i) => {
    const { formula } = one.memory;
    const most = Math.max(...one.x);
    return [{ name: one.label, colour: colour(i), x: one.x, y: one.memory.measured, marks: true, width: formula ? 0 : 2 },
      formula ? { name: `${one.label}, ${t.predicted}`, colour: colour(i), x: formula.map(([n]) => n), y: formula.map(([, size]) => size), width: 1.5 } : null,
      one.memory.limit > 0 && one.memory.ratio > 1 ? { name: `${one.label}, ${t.limit}`, colour: colour(i), x: [1, 2 * most], y: [one.memory.limit, one.memory.limit], dash: "2 4", width: 1.5 } : null].filter(Boolean);
  });
  return [figure({
    id: `sweep-memory-${index}`, title: t.sweepMemory, caption: t.sweepMemoryCaption, texts: t, readout: true,
    draw: (width, say) => lines({ width, zero: true, series: curves, xMarks, xTitle: t.options.workers, yTitle: "", xText: whole, yText: bytes, yTicks: (least, top, count) => byteTicks(top, count), say }),
    data: () => [["strategy", "workers", "measured", "predicted", "limit"], ...list.flatMap((one) => one.value.map((value, i) => [one.label, value, one.memory.measured[i], one.memory.predicted[i], one.memory.limit]))],
  }), table([{ title: t.strategy }, { title: t.limitTitle, number: true }], list.map((one) => [one.label, limitText(t, one.memory)]))];
}

export function sweeps(ctx) {
  const { t } = ctx;
  if (ctx.doc.sweeps.length === 0) return null;
  return section("sweeps", t.sweepsTitle, ctx.doc.sweeps.map((sweep, index) => {
    const cells = sweep.series.flatMap((one, i) => one.value.map((value, at) => [one.label, valueText(sweep.option, one.x[at]),
      ...["step_s", "least_s", "most_s", "predicted_s", "link_s"].map((name) => number(ctx, `sweeps.${index}.series.${i}.${name}.${at}`, milliseconds))]));
    return [h("h3", {}, t.options[sweep.option] ?? sweep.option),
      h("div", { class: "keys" }, sweep.series.map((one, i) => h("span", {}, h("span", { class: "swatch", style: `background:${colour(i)}` }), one.label))),
      h("div", { class: "pair" }, timeFigure(ctx, sweep, index), h("div", {}, memoryFigure(ctx, sweep, index))),
      h("details", {}, h("summary", {}, t.table), table([{ title: t.strategy }, { title: t.options[sweep.option] ?? sweep.option, number: true },
        ...[t.stepMs, t.least, t.most, `${t.predicted} ms`, `${t.linkAlone} ms`].map((title) => ({ title, number: true }))], cells))];
  }));
}
