// The mesh of each run that divides its model: its groups, and the bubble of its pipeline.

import { bars } from "../common/charts.js";
import { h, table } from "../common/dom.js";
import { figure } from "../common/figure.js";
import { fixed, kNothing, milliseconds, short } from "../common/format.js";
import { processName } from "../common/names.js";
import { keys, section } from "../common/parts.js";
import { number } from "./context.js";

const share = (value) => `${fixed(100 * value, 1)} %`;

/// The steps of a row's workers, cut into the wait for other stages and everything else.
function stageBars(t, row) {
  return (row.run.workers ?? []).filter((worker) => worker.bubble).map((worker) => {
    const step = worker.step_s.median;
    const waits = worker.bubble.median * step;
    return { name: processName(t, worker.process), text: share(worker.bubble.median),
             parts: [{ value: step - waits, colour: "var(--compute)", title: `${t.otherTime} ${milliseconds(step - waits)} ms` },
               { value: waits, colour: "var(--bubble)", title: `${t.bubble} ${milliseconds(waits)} ms` }] };
  });
}

export function mesh(ctx) {
  const { t } = ctx;
  const rows = ctx.rows.filter((row) => row.ownership?.mesh);
  if (rows.length === 0) return null;
  const path = (row, name) => `rows.${row.index}.runs.0.summary.pipeline.${name}`;
  const pipeline = (row, name, format) => (row.run.summary?.pipeline ? number(ctx, path(row, name), format) : kNothing);
  const axis = (row, name) => number(ctx, `rows.${row.index}.ownership.mesh.${name}`, String);
  const staged = rows.filter((row) => stageBars(t, row).length > 0);
  return section("mesh", t.meshTitle,
    table([{ title: t.strategy }, { title: t.copies, number: true }, { title: t.tensorRanks, number: true }, { title: t.stages, number: true }, { title: t.schedule },
      { title: t.microBatches, number: true }, { title: t.inFlightMicros, number: true }, { title: t.bubbleMeasured, number: true }, { title: t.bubblePredicted, number: true }],
    rows.map((row) => [row.label, axis(row, "data"), axis(row, "tensor"), axis(row, "pipeline"), row.run.summary?.pipeline?.schedule ?? kNothing,
      pipeline(row, "micro_batches", String), pipeline(row, "most_in_flight", String), pipeline(row, "bubble", share), pipeline(row, "predicted_bubble", share)])),
    staged.length === 0 ? null : [keys([["var(--compute)", t.otherTime], ["var(--bubble)", t.bubble]]),
      figure({
        id: "bubble", title: t.bubbleFigure, caption: t.bubbleCaption, texts: t,
        draw: (width) => bars({ width, groups: staged.map((row) => ({ name: row.label, bars: stageBars(t, row) })), text: (v) => `${short(v * 1000)} ms` }),
        data: () => [["strategy", "process", "step_s", "bubble"], ...staged.flatMap((row) => row.run.workers.filter((worker) => worker.bubble)
          .map((worker) => [row.label, worker.process, worker.step_s.median, worker.bubble.median]))],
      })]);
}
