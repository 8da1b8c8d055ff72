// The time of a step: computing and exposed communication of each worker.

import { bars } from "../common/charts.js";
import { h, table } from "../common/dom.js";
import { figure } from "../common/figure.js";
import { milliseconds, short } from "../common/format.js";
import { processName } from "../common/names.js";
import { keys, section } from "../common/parts.js";
import { choice, measured, number, star, starNote } from "./context.js";
import { stepParts } from "./step_parts.js";
import { waits } from "./waits.js";

const kMostBars = 40;

/// All workers if they fit, otherwise the one with the longest step.
function shown(rows, row) {
  if (row) return [row].map((one) => [one, one.run.workers]);
  const total = rows.reduce((sum, one) => sum + one.run.workers.length, 0);
  return rows.map((one) => [one, total <= kMostBars ? one.run.workers
    : [one.run.workers.reduce((a, b) => (b.step_s.median > a.step_s.median ? b : a))]]);
}

export function time(ctx) {
  const { t } = ctx;
  const rows = ctx.rows.filter((row) => row.run.workers?.some((worker) => worker.step_s));
  if (rows.length === 0) return null;
  const { node, row } = choice(ctx, "time", true, rows);
  const predicted = rows.some((one) => one.run.workers.some((worker) => worker.predicted_exposed_comm_s != null));
  const group = ([one, workers]) => ({
    name: one.label,
    bars: workers.map((worker) => ({
      name: processName(t, worker.process),
      parts: [
        { value: worker.busy_step_s.median, colour: "var(--compute)", title: `${t.computing} ${milliseconds(worker.busy_step_s.median)} ms` },
        { value: worker.exposed_step_s.median, colour: "var(--exposed)", title: `${t.exposed} ${milliseconds(worker.exposed_step_s.median)} ms` },
      ],
      tick: worker.step_s.median, from: worker.step_s.p10, to: worker.step_s.p90, text: `${milliseconds(worker.step_s.median)} ms${star(one)}`,
      mark: worker.predicted_exposed_comm_s == null ? null : worker.busy_step_s.median + worker.predicted_exposed_comm_s,
      markTitle: `${t.predictedExposed} ${milliseconds(worker.predicted_exposed_comm_s)} ms`,
    })),
  });
  const kinds = [["step_s", t.stepMs], ["busy_step_s", t.busyMs], ["exposed_step_s", t.exposedMs]];
  const columns = [{ title: t.strategy }, { title: t.process },
    ...kinds.flatMap(([, name]) => [t.median, t.p10, t.p90].map((q) => ({ title: `${name} ${q}`, number: true }))),
    ...(predicted ? [{ title: `${t.predictedExposed} ms`, number: true }] : [])];
  const body = (row ? [row] : rows).flatMap((one) => one.run.workers.map((worker, i) => {
    const own = `rows.${one.index}.runs.0.workers.${i}.`;
    return [one.label, processName(t, worker.process),
      ...kinds.flatMap(([kind]) => ["median", "p10", "p90"].map((q) => measured(ctx, one, `${own}${kind}.${q}`, milliseconds))),
      ...(predicted ? [number(ctx, own + "predicted_exposed_comm_s", milliseconds)] : [])];
  }));
  return section("time", t.timeTitle, node,
    keys([["var(--compute)", t.computing], ["var(--exposed)", t.exposed]]),
    figure({
      id: "step-time", title: t.timeFigure, caption: t.timeCaption, texts: t,
      draw: (width) => bars({ width, groups: shown(rows, row).map(group), text: (v) => `${short(v * 1000)} ms` }),
      data: () => [["strategy", "worker", ...kinds.flatMap(([kind]) => ["median", "p10", "p90"].map((q) => `${kind}_${q}`)), "predicted_exposed_comm_s"],
        ...shown(rows, row).flatMap(([one, workers]) => workers.map((worker) =>
          [one.label, worker.process, ...kinds.flatMap(([kind]) => ["median", "p10", "p90"].map((q) => worker[kind][q])), worker.predicted_exposed_comm_s]))],
    }),
    h("details", {}, h("summary", {}, t.table), table(columns, body)),
    starNote(ctx, row ? [row] : rows),
    stepParts(ctx, row ? [row] : rows),
    waits(ctx, row ? [row] : rows));
}
