// Losses and recoveries on a line of seconds.

import { label, svg } from "../common/charts.js";
import { s } from "../common/dom.js";
import { figure } from "../common/figure.js";
import { fixed, ticks, whole } from "../common/format.js";
import { section } from "../common/parts.js";
import { duration } from "./numbers.js";
import { growingTable } from "./rows.js";

const xOfTicks = (v) => (v >= 1000 ? whole(v) : String(v));

function line(t, { recoveries, time_s }, width) {
  const most = Math.max(time_s ?? 0, ...recoveries.map((one) => (one.time_s ?? 0) + (one.delay_s ?? 0))) || 1;
  const x = (value) => 8 + (value / most) * (width - 28);
  return svg(width, 78,
    s("line", { x1: x(0), x2: x(time_s ?? 0), y1: 30, y2: 30, stroke: "var(--s0)", "stroke-width": 5 }),
    recoveries.filter((one) => one.time_s != null).map((one) => [
      one.delay_s == null ? null : s("rect", { x: x(one.time_s), y: 22, width: Math.max(1.5, x(one.delay_s) - x(0)), height: 16, fill: "var(--bad)", "fill-opacity": "var(--faint)" }),
      s("path", { d: `M${x(one.time_s)},20v20m-5,-15l10,10m0,-10l-10,10`, stroke: "var(--bad)", "stroke-width": 2, fill: "none" }, s("title", {}, one.what))]),
    ticks(0, most, Math.max(2, Math.floor(width / 110))).map((v) => label(x(v), 56, xOfTicks(v), { "text-anchor": x(v) > width - 40 ? "end" : v === 0 ? "start" : "middle" })),
    label(width - 20, 74, t.seconds, { "text-anchor": "end" }));
}

export function recoveries(ctx) {
  const { t } = ctx;
  const drawn = figure({ id: "recoveries-line", title: t.recoveriesFigure, caption: t.recoveriesCaption, texts: t,
    draw: (width) => line(t, ctx.snapshot, width),
    data: () => [["time_s", "what", "step", "delay_s"], ...ctx.snapshot.recoveries.map((one) => [one.time_s, one.what, one.step, one.delay_s])] });
  const table = growingTable({ label: t.recoveriesTitle, classes: "live wraps", columns: [
    { name: "time", title: t.at, number: false, text: (one) => duration(t, one.time_s) },
    { name: "what", title: t.lost, text: (one) => String(one.what ?? "—") },
    { name: "step", title: t.continued, number: true, text: (one) => (one.step == null ? t.notYet : whole(one.step)) },
    { name: "delay", title: t.delay, number: true, text: (one) => fixed(one.delay_s, 2) },
  ] });
  const update = (snapshot) => {
    drawn.redraw();
    table.update(snapshot.recoveries.map((one, number) => ({ ...one, number })).reverse(), (one) => one.number);
  };
  return { id: "recoveries", node: section("recoveries", t.recoveriesTitle, drawn, table.node), has: (snapshot) => snapshot.recoveries.length > 0, update };
}
