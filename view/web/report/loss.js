// Loss over steps and over seconds, and the quality on the test set.

import { lines } from "../common/charts.js";
import { h } from "../common/dom.js";
import { figure } from "../common/figure.js";
import { short, whole } from "../common/format.js";
import { section } from "../common/parts.js";
import { badge } from "./context.js";

/// Curves that look the same are drawn as one line, of which each has every other dash.
function dashes(series) {
  const groups = new Map();
  for (const one of series) {
    const key = [one.x, one.y].map((values) => values.map((v) => v?.toPrecision(3)).join()).join(";");
    groups.set(key, [...(groups.get(key) ?? []), one]);
  }
  for (const group of groups.values())
    if (group.length > 1) group.forEach((one, i) => Object.assign(one, { dash: `7 ${7 * (group.length - 1)}`, shift: -7 * i }));
  return series;
}

function chart(ctx, id, title, rows, { columns, x, y, xTitle, yTitle, xText, marks, caption, hidden }) {
  const { t } = ctx;
  const shown = () => rows.filter((row) => !hidden.has(row.index));
  return figure({
    id, title, caption, texts: t, readout: true,
    draw: (width, say) => lines({
      width, xTitle, yTitle, xText, yText: short, say,
      series: dashes(shown().map((row) => ({ name: row.label, colour: row.colour, dash: row.dash, marks, x: row.run[columns][x], y: row.run[columns][y] }))),
    }),
    data: () => [["strategy", x, y], ...shown().flatMap((row) => row.run[columns][x].map((v, i) => [row.label, v, row.run[columns][y][i]]))],
  });
}

// The columns of evaluations that every model has; the others are the model's own metrics.
const kColumns = ["step", "time_s", "test_loss", "test_accuracy", "test_perplexity"];

export function loss(ctx) {
  const { t } = ctx;
  const rows = ctx.rows.filter((row) => row.run.loss.step.length > 0);
  if (rows.length === 0) return null;
  const hidden = ctx.hidden;
  const tested = (name) => rows.filter((row) => row.run.evaluations[name]?.some((v) => v != null));
  const own = rows.flatMap((row) => Object.keys(row.run.evaluations)).find((name) => !kColumns.includes(name));
  const ownName = own?.slice("test_".length);
  const measure = tested("test_perplexity").length ? "perplexity" : ownName ?? (tested("test_accuracy").length ? "accuracy" : "loss");
  const evaluated = tested("test_" + measure).filter((row) => row.run.evaluations.step.length > 1);
  const measured = measure === ownName ? ownName : t[measure];
  const group = Math.max(...rows.map((row) => Math.ceil(row.run.loss.steps / row.run.loss.step.length)));
  const charts = [
    chart(ctx, "loss-steps", t.lossSteps, rows, { columns: "loss", x: "step", y: "loss", xTitle: t.step, yTitle: t.loss, xText: whole, hidden, caption: group > 1 ? t.thinned(group) : null }),
    chart(ctx, "loss-seconds", t.lossSeconds, rows, { columns: "loss", x: "time_s", y: "loss", xTitle: t.seconds, yTitle: t.loss, xText: short, hidden, caption: t.lossSecondsNote }),
    evaluated.length ? chart(ctx, "quality-steps", t.quality(measured), evaluated, { columns: "evaluations", x: "step", y: "test_" + measure, xTitle: t.step, yTitle: measured, xText: whole, marks: true, hidden }) : null,
    evaluated.length ? chart(ctx, "quality-seconds", t.qualitySeconds(measured), evaluated, { columns: "evaluations", x: "time_s", y: "test_" + measure, xTitle: t.seconds, yTitle: measured, xText: short, marks: true, hidden }) : null,
  ];
  const legend = h("div", { class: "keys", role: "group", "aria-label": t.strategy }, rows.map((row) => {
    const summary = row.run.summary;
    const quality = summary?.test_perplexity != null ? `${t.perplexity} ${short(summary.test_perplexity)}`
      : summary?.own?.[own] != null ? `${ownName} ${short(summary.own[own])}`
      : summary?.test_accuracy != null ? `${t.accuracy} ${short(summary.test_accuracy)}`
      : summary?.test_loss != null ? `${t.testLoss} ${short(summary.test_loss)}` : null;
    const button = h("button", { type: "button", "aria-pressed": String(!hidden.has(row.index)), onclick: () => {
      if (!hidden.delete(row.index)) hidden.add(row.index);
      button.setAttribute("aria-pressed", String(!hidden.has(row.index)));
      charts.forEach((one) => one?.redraw());
    } }, h("span", { class: "swatch", style: `background:${row.colour}` }), ` ${row.label} `, badge(ctx, row.compare?.equality), quality ? ` ${quality}` : "");
    return button;
  }));
  return section("loss", t.lossTitle, h("p", { class: "quiet" }, t.lossNote, " ", t.keyboard), legend, h("div", { class: "pair" }, charts));
}
