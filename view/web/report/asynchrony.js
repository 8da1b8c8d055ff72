// Asynchrony: the updates that a gradient missed, and how far workers were apart.

import { columns, lines } from "../common/charts.js";
import { h, table } from "../common/dom.js";
import { figure } from "../common/figure.js";
import { fixed, short, whole } from "../common/format.js";
import { processName } from "../common/names.js";
import { keys, section } from "../common/parts.js";
import { choice, number } from "./context.js";

const kLastBin = 64;  // counts everything from 64 on

const colourOf = (worker) => `var(--s${worker % 8})`;

function histogram(ctx, row) {
  const { t } = ctx;
  const list = row.run.summary.staleness;
  const last = Math.max(...list.map((one) => one.histogram.length));
  const name = (i) => `${t.worker} ${i}`;
  return figure({
    id: "staleness", title: t.stalenessFigure + t.colon + row.label, caption: t.stalenessCaption, texts: t,
    draw: (width) => columns({ width, xTitle: t.missedUpdates, yTitle: t.updates, xText: (i) => (i === kLastBin && last > kLastBin ? `≥ ${i}` : String(i)),
      parts: list.map((one, i) => ({ name: name(i), colour: colourOf(i), values: one.histogram })) }),
    data: () => [["worker", "staleness", "updates"], ...list.flatMap((one, i) => one.histogram.map((count, at) => [i, at, count]))],
  });
}

/// A curve for each worker: the column `y` of what is `recorded` by worker, over its column `x`.
function curves(ctx, row, { recorded, x, y, series, axes, ...texts }) {
  const { t } = ctx;
  const list = Object.entries(recorded ?? {});
  if (list.length === 0) return null;
  return figure({
    ...texts, title: texts.title + t.colon + row.label, texts: t, readout: true,
    draw: (width, say) => lines({ width, height: 220, zero: true, yText: short, say, ...axes,
      series: list.map(([process, one], i) => ({ name: processName(t, process), colour: colourOf(i), width: 1.4, ...series(one) })) }),
    data: () => [["worker", x, y], ...list.flatMap(([process, one]) => one[x].map((at, i) => [process, at, one[y][i]]))],
  });
}

const stalenessCurve = (ctx, row) => curves(ctx, row, {
  id: "staleness-steps", title: ctx.t.stalenessSteps, recorded: row.run.staleness, x: "step", y: "staleness",
  series: (one) => ({ x: one.step, y: one.staleness }), axes: { xTitle: ctx.t.step, yTitle: ctx.t.missedUpdates, xText: whole },
});

/// A lag holds until the worker's next step: each value becomes two points.
function stairs({ time_s: at, lag }) {
  return { x: at.flatMap((time, i) => (i === 0 ? [time] : [time, time])), y: lag.flatMap((value, i) => (i + 1 < lag.length ? [value, value] : [value])) };
}

const lagCurve = (ctx, row) => curves(ctx, row, {
  id: "lag", title: ctx.t.lagFigure, caption: ctx.t.lagCaption, recorded: row.run.lag, x: "time_s", y: "lag",
  series: stairs, axes: { xTitle: ctx.t.seconds, yTitle: ctx.t.lagSteps, xText: short },
});

function again(ctx) {
  const { t } = ctx;
  const rows = ctx.rows.filter((row) => row.run.retransmitted?.length);
  if (rows.length === 0) return null;
  return [h("h3", {}, t.retransmitted), table([{ title: t.strategy }, { title: t.from }, { title: t.to }, { title: t.frames, number: true }, { title: t.framing, number: true }],
    rows.flatMap((row) => row.run.retransmitted.map(([from, to], i) => [row.label, processName(t, from), processName(t, to),
      ...[2, 3].map((at) => number(ctx, `rows.${row.index}.runs.0.retransmitted.${i}.${at}`, whole))])))];
}

export function asynchrony(ctx) {
  const { t } = ctx;
  const rows = ctx.rows.filter((row) => row.run.summary?.staleness?.length);
  const resent = again(ctx);
  if (rows.length === 0) return resent ? section("asynchrony", t.asynchronyTitle, resent) : null;
  const { node, row: chosen } = choice(ctx, "asynchrony", false, rows);
  const row = rows.includes(chosen) ? chosen : rows[0];
  const names = [["mean", (v) => fixed(v, 2)], ["most", whole], ["most_lag", whole], ["updates", whole], ["dropped", whole]];
  return section("asynchrony", t.asynchronyTitle, node,
    keys(row.run.summary.staleness.map((_, i) => [colourOf(i), `${t.worker} ${i}`])),
    h("div", { class: "pair" }, histogram(ctx, row), stalenessCurve(ctx, row), lagCurve(ctx, row)),
    table([{ title: t.strategy }, { title: t.process }, ...[t.meanStaleness, t.mostStaleness, t.mostLag, t.updates, t.dropped].map((title) => ({ title, number: true }))],
      rows.flatMap((one) => one.run.summary.staleness.map((_, i) => [one.label, `${t.worker} ${i}`,
        ...names.map(([name, format]) => number(ctx, `rows.${one.index}.runs.0.summary.staleness.${i}.${name}`, format))]))),
    resent);
}
