// Curves over the swept option, with the crossings of those that are shown.

import { lines } from "../common/charts.js";
import { h, table } from "../common/dom.js";
import { figure } from "../common/figure.js";
import { bytes, byteTicks, fixed, plain } from "../common/format.js";
import { section, swatch } from "../common/parts.js";

const share = (row) => (100 * row.exposed_s) / row.step_s;

/// The axis of the swept option: its marks are the swept values.
function axisOf(ctx) {
  const { doc, t } = ctx;
  const xs = doc.points.map((point) => point.x);
  const nearest = (x) => xs.reduce((best, v, i) => (Math.abs(v - x) < Math.abs(xs[best] - x) ? i : best), 0);
  return { xMarks: xs, xLog: xs[0] > 0 && xs.at(-1) / xs[0] >= 4, xTitle: t.options[doc.sweep] ?? doc.sweep, xText: (x) => doc.points[nearest(x)].value };
}

const shownCurves = (ctx) => ctx.state.curves.filter((one) => ctx.state.shown.has(one.name));

function seriesOf(ctx, value) {
  return shownCurves(ctx).map(({ name, points, colour, dash }) => ({
    name, colour, dash, marks: points.length < 40, x: points.map(([p]) => ctx.doc.points[p].x), y: points.map(([p, r]) => value(ctx.doc.points[p].rows[r])) }));
}

/// The crossings of a figure whose two curves are shown.
export const crossingsOf = (ctx, of) => (ctx.doc.crossings ?? []).map((one, index) => ({ ...one, index }))
  .filter((one) => one.of === of && ctx.state.shown.has(one.before) && ctx.state.shown.has(one.after));

function curve(ctx, { id, title, caption, yTitle, value, column, of, scale = 1, ...more }) {
  const { t, doc } = ctx;
  const dots = of ? crossingsOf(ctx, of).map((one) => ({ x: one.x, y: one.y * scale, name: `${one.before} → ${one.after}` })) : [];
  return figure({
    id, title, caption, texts: t, readout: true,
    draw: (width, say, held) => lines({ width, height: 300, series: [...seriesOf(ctx, value), ...(more.extra ?? [])], dots, ...axisOf(ctx), yTitle, yText: plain, say, held, ...more }),
    data: () => [["series", doc.sweep, "label", column], ...shownCurves(ctx).flatMap(({ name, points }) => points.map(([p, r]) => [name, doc.points[p].value, doc.points[p].rows[r].label, value(doc.points[p].rows[r]) / scale]))],
  });
}

/// A button for each curve, which shows or hides it.
function legend(ctx) {
  const { t, state } = ctx;
  const toggle = (curve, id) => h("button", { type: "button", id, "aria-pressed": String(state.shown.has(curve.name)), onclick: () => ctx.change(() => {
    if (!state.shown.delete(curve.name)) state.shown.add(curve.name);
  }, id) }, swatch(curve.colour), " ", curve.name);
  const buttons = state.curves.map((curve, i) => ({ ...curve, button: toggle(curve, `curve-${i}`) }));
  const more = buttons.filter((one) => !one.main).map((one) => one.button);
  return [h("div", { class: "choose legend" }, buttons.filter((one) => one.main).map((one) => one.button)),
    more.length === 0 ? null : h("details", { open: state.more, ontoggle: (event) => { state.more = event.target.open; } },
      h("summary", {}, t.moreCurves(more.length)), h("div", { class: "choose legend" }, more))];
}

function crossings(ctx) {
  const { t, doc } = ctx;
  const figures = { step_s: t.stepFigure, per_host: t.rateFigure(ctx.unit) };
  const list = ["step_s", "per_host"].flatMap((of) => crossingsOf(ctx, of));
  if (list.length === 0) return h("p", { class: "quiet" }, t.crossingsNone);
  const option = t.options[doc.sweep] ?? doc.sweep;
  const text = (one) => (one.of === "step_s" ? `${plain(one.y * 1000)} ms` : plain(one.y));
  return h("details", {}, h("summary", {}, `${t.crossingsTitle} (${list.length})`),
    table([{ title: t.figureColumn }, { title: t.before }, { title: t.after }, { title: `${option} ${t.between2}` }, { title: t.at, number: true }], list.map((one) =>
      [figures[one.of], one.before, one.after, `${doc.points[one.point].value} – ${doc.points[one.point + 1].value}`,
        h("td", { class: "n", "data-crossing": one.index }, text(one))])));
}

export function curves(ctx) {
  const { t, doc } = ctx;
  if (!doc.points || doc.points.length < 2) return null;
  ctx.unit = ctx.rate === "tokens_per_s" ? t.tokens : t.samples;
  const limit = doc.memory_bytes;
  const xs = doc.points.map((point) => point.x);
  const extra = limit ? [{ name: t.limitName, colour: "var(--bad)", dash: "6 4", width: 1.5, x: [xs[0], xs.at(-1)], y: [limit, limit] }] : [];
  return section("curves", t.curvesTitle(t.options[doc.sweep] ?? doc.sweep), h("p", { class: "quiet" }, t.curvesNote), legend(ctx),
    h("div", { class: "pair" },
      curve(ctx, { id: "curve-step", title: t.stepFigure, caption: t.stepCaption, yTitle: t.stepAxis, value: (row) => row.step_s * 1000, scale: 1000, column: "step_s", of: "step_s", yLog: true }),
      curve(ctx, { id: "curve-rate", title: t.rateFigure(ctx.unit), caption: t.rateCaption, yTitle: "", value: (row) => row.per_host, column: "per_host", of: "per_host", zero: true }),
      curve(ctx, { id: "curve-exposed", title: t.exposedFigure, caption: t.exposedCaption, yTitle: t.exposedAxis, value: share, column: "exposed_percent", zero: true, yText: (v) => fixed(v, v < 10 && v > 0 ? 1 : 0) }),
      curve(ctx, { id: "curve-memory", title: t.memoryFigure, caption: t.memoryCaption, yTitle: t.memoryAxis, value: (row) => row.process_bytes, column: "process_bytes", zero: true, extra, yText: bytes, yTicks: (least, most, count) => byteTicks(most, count) })),
    crossings(ctx));
}
