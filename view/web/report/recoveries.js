// Losses and recoveries, on a line of steps.

import { cut, label, svg } from "../common/charts.js";
import { h, s, table } from "../common/dom.js";
import { figure } from "../common/figure.js";
import { fixed, kNothing, ticks, whole } from "../common/format.js";
import { section } from "../common/parts.js";

/// Returns {lost: [text], givenUp, epoch, step, seconds, workers}: what was lost together, and how the job continued.
export function episodes(lines) {
  const list = [];
  let open = null;
  for (const line of lines) {
    open ??= { lost: [], givenUp: [] };
    if (line.lost !== undefined) open.lost.push(String(line.lost));
    if (line.given_up !== undefined) open.givenUp.push(...[line.given_up].flat());
    if (line.workers !== undefined) open.workers = line.workers;
    if (line.seconds === undefined) continue;
    list.push({ ...open, epoch: line.epoch, step: line.step, seconds: line.seconds });
    open = null;
  }
  if (open) list.push(open);
  return list;
}

function line(rows, width, t) {
  const most = Math.max(1, ...rows.map(({ row, list }) => Math.max(row.run.loss.step.at(-1) ?? 0, ...list.map((one) => one.step ?? 0))));
  const right = 20;
  const x = (step) => 8 + (step / most) * (width - 8 - right);
  let y = 0;
  const nodes = rows.map(({ row, list }) => {
    const top = y;
    y += 58;
    return [label(0, top + 14, cut(row.label, width), { fill: "var(--text)", "font-weight": 600, "font-size": 13 }),
      s("line", { x1: x(0), x2: x(row.run.loss.step.at(-1) ?? most), y1: top + 38, y2: top + 38, stroke: row.colour, "stroke-width": 5 }),
      list.map((one) => one.step === undefined
        ? label(width - right, top + 20, t.neverCame, { "text-anchor": "end", fill: "var(--bad)" })
        : [s("path", { d: `M${x(one.step)},${top + 28}v20m-5,-15l10,10m0,-10l-10,10`, stroke: "var(--bad)", "stroke-width": 2, fill: "none" }, s("title", {}, one.lost.join("; "))),
           label(x(one.step) + (x(one.step) > width - 70 ? -8 : 8), top + 30, `${fixed(one.seconds, 2)} s`, { "text-anchor": x(one.step) > width - 70 ? "end" : "start" })])];
  });
  return svg(width, y + 24, nodes, ticks(0, most, Math.max(2, Math.floor(width / 110))).map((v) => label(x(v), y + 14, whole(v), { "text-anchor": x(v) > width - 40 ? "end" : v === 0 ? "start" : "middle" })));
}

export function recoveries(ctx) {
  const { t } = ctx;
  const rows = ctx.rows.map((row) => ({ row, list: episodes(row.run.recoveries) })).filter(({ list }) => list.length > 0);
  if (rows.length === 0) return null;
  const all = rows.flatMap(({ row, list }) => list.map((one) => ({ row, one })));
  return section("recoveries", t.recoveriesTitle,
    figure({ id: "recovery-line", title: t.recoveriesFigure, texts: t, draw: (width) => line(rows, width, t),
      data: () => [["strategy", "lost", "epoch", "step", "seconds", "workers"], ...all.map(({ row, one }) => [row.label, one.lost.join("; "), one.epoch, one.step, one.seconds, one.workers])] }),
    table([{ title: t.strategy }, { title: t.lost, wrap: true }, { title: t.continued, number: true }, { title: t.delay, number: true }, { title: t.workersLeft, number: true }],
      all.map(({ row, one }) => [row.label, [one.lost.map((text) => h("div", {}, text)), one.givenUp.length ? h("div", {}, t.givenUp(one.givenUp.join(t.listSep))) : null], whole(one.step), fixed(one.seconds, 3), one.workers ?? kNothing])));
}
