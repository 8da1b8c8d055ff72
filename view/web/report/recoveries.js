// Losses and recoveries, on a line of steps and on a line of seconds.

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

/// Returns {from, to}: the seconds between the last step that was kept from before a loss, and the first one after it.
function gap(run, episode) {
  const { step, time_s } = run.loss;
  const after = step.findIndex((one) => one >= episode.step);
  if (episode.step === undefined || after < 0) return null;
  return { from: time_s[Math.max(0, after - 1)], to: time_s[after] };
}

const kAxes = {
  steps: { end: (run) => run.loss.step.at(-1), place: (run, episode) => episode.step, text: whole },
  seconds: { end: (run) => run.loss.time_s.at(-1), place: (run, episode) => gap(run, episode)?.from, text: (v) => String(v) },
};

function line(rows, width, t, axis) {
  const { end, place, text } = kAxes[axis];
  const most = Math.max(axis === "steps" ? 1 : 0, ...rows.map(({ row, list }) => Math.max(end(row.run) ?? 0, ...list.map((one) => place(row.run, one) ?? 0)))) || 1;
  const right = 20;
  const x = (value) => 8 + (value / most) * (width - 8 - right);
  let y = 0;
  const nodes = rows.map(({ row, list }) => {
    const top = y;
    y += 58;
    return [label(0, top + 14, cut(row.label, width), { fill: "var(--text)", "font-weight": 600, "font-size": 13 }),
      s("line", { x1: x(0), x2: x(end(row.run) ?? most), y1: top + 38, y2: top + 38, stroke: row.colour, "stroke-width": 5 }),
      list.map((one) => {
        const at = place(row.run, one);
        if (at == null) return label(width - right, top + 20, t.neverCame, { "text-anchor": "end", fill: "var(--bad)" });
        const near = x(at) > width - 70;
        const band = axis === "seconds" ? gap(row.run, one) : null;
        return [band ? s("rect", { x: x(band.from), y: top + 30, width: Math.max(1.5, x(band.to) - x(band.from)), height: 16, fill: "var(--bad)", "fill-opacity": "var(--faint)" }) : null,
           s("path", { d: `M${x(at)},${top + 28}v20m-5,-15l10,10m0,-10l-10,10`, stroke: "var(--bad)", "stroke-width": 2, fill: "none" }, s("title", {}, one.lost.join("; "))),
           label(x(at) + (near ? -8 : 8), top + 26, `${fixed(one.seconds, 2)} s`, { "text-anchor": near ? "end" : "start" })];
      })];
  });
  return svg(width, y + 24, nodes, ticks(0, most, Math.max(2, Math.floor(width / 110))).map((v) => label(x(v), y + 14, text(v), { "text-anchor": x(v) > width - 40 ? "end" : v === 0 ? "start" : "middle" })));
}

export function recoveries(ctx) {
  const { t } = ctx;
  const rows = ctx.rows.map((row) => ({ row, list: episodes(row.run.recoveries) })).filter(({ list }) => list.length > 0);
  if (rows.length === 0) return null;
  const all = rows.flatMap(({ row, list }) => list.map((one) => ({ row, one })));
  const data = () => [["strategy", "lost", "epoch", "step", "seconds", "workers", "from_s", "to_s"], ...all.map(({ row, one }) => [row.label, one.lost.join("; "), one.epoch, one.step, one.seconds, one.workers, gap(row.run, one)?.from, gap(row.run, one)?.to])];
  return section("recoveries", t.recoveriesTitle,
    h("div", { class: "pair" },
      figure({ id: "recovery-line", title: t.recoveriesFigure, texts: t, draw: (width) => line(rows, width, t, "steps"), data }),
      figure({ id: "recovery-seconds", title: t.recoveriesSeconds, caption: t.recoveriesGap, texts: t, draw: (width) => line(rows, width, t, "seconds"), data })),
    table([{ title: t.strategy }, { title: t.lost, wrap: true }, { title: t.continued, number: true }, { title: t.delay, number: true }, { title: t.workersLeft, number: true }],
      all.map(({ row, one }) => [row.label, [one.lost.map((text) => h("div", {}, text)), one.givenUp.length ? h("div", {}, t.givenUp(one.givenUp.join(t.listSep))) : null], whole(one.step), fixed(one.seconds, 3), one.workers ?? kNothing])));
}
