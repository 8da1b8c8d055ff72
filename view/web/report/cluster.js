// The step on a cluster that the cost model predicts, beside the step that was measured here.

import { bars } from "../common/charts.js";
import { table } from "../common/dom.js";
import { figure } from "../common/figure.js";
import { kNothing, milliseconds, short } from "../common/format.js";
import { keys, section } from "../common/parts.js";
import { measured, number, star, starNote } from "./context.js";

const isPredicted = (row) => row.compare?.predicted?.some((one) => one.step_s != null);

/// The link of a prediction, as bars and columns name it.
const linkName = (t, one) => (one.encrypted ? `${one.link}, ${t.encrypted}` : one.link);

/// The different links of all rows' predictions: pages of several comparisons may have more than a comparison has.
export function linksOf(t, rows) {
  return [...new Set(rows.flatMap((row) => (row.compare?.predicted ?? []).map((one) => linkName(t, one))))];
}

/// Cells of a row with its predicted step at each of the links.
export function predictedCells(ctx, row, links) {
  return links.map((link) => {
    const i = (row.compare?.predicted ?? []).findIndex((one) => linkName(ctx.t, one) === link && one.step_s != null);
    return i < 0 ? kNothing : measured(ctx, row.compare.predicted[i], `rows.${row.index}.compare.predicted.${i}.step_s`, milliseconds);
  });
}

function predictedBar(t, one) {
  const exposed = one.step_s - one.compute_s;
  return {
    name: linkName(t, one), text: `${milliseconds(one.step_s)} ms`,
    parts: [
      { value: one.compute_s, colour: "var(--compute)", title: `${t.computingAlone} ${milliseconds(one.compute_s)} ms` },
      { value: exposed, colour: "var(--exposed)", title: `${t.restOfStep} ${milliseconds(exposed)} ms` },
    ],
  };
}

function measuredBar(t, row) {
  const step = row.compare.step_s.median;
  return { name: t.measuredHere, text: `${milliseconds(step)} ms${star(row)}`, parts: [{ value: step, colour: "var(--quiet)", title: `${t.measuredHere} ${milliseconds(step)} ms` }] };
}

export function cluster(ctx) {
  const { t } = ctx;
  const rows = ctx.rows.filter(isPredicted);
  if (rows.length === 0) return null;
  const links = linksOf(t, rows);
  const columns = [{ title: t.strategy }, ...links.map((link) => ({ title: `${link} ms`, number: true })), { title: `${t.measuredHere} ms`, number: true }];
  const body = ctx.rows.filter((row) => row.compare).map((row) => [row.label,
    ...predictedCells(ctx, row, links),
    measured(ctx, row, `rows.${row.index}.compare.step_s.median`, milliseconds)]);
  return section("cluster", t.clusterTitle,
    keys([["var(--compute)", t.computingAlone], ["var(--exposed)", t.restOfStep]]),
    figure({
      id: "cluster-step", title: t.clusterFigure, caption: t.clusterCaption, texts: t,
      draw: (width) => bars({
        width, text: (v) => `${short(v * 1000)} ms`,
        groups: rows.map((row) => ({ name: row.label, bars: [...row.compare.predicted.filter((one) => one.step_s != null).map((one) => predictedBar(t, one)), measuredBar(t, row)] })),
      }),
      data: () => [["strategy", "link", "predicted_step_s", "predicted_compute_s", "measured_here_s"],
        ...rows.flatMap((row) => row.compare.predicted.map((one) => [row.label, one.link, one.step_s, one.compute_s, row.compare.step_s.median]))],
    }),
    table(columns, body), starNote(ctx, rows));
}
