// A step's time by what a worker does, and the communication that it hides, from the traces of the runs.

import { bars } from "../common/charts.js";
import { h, table } from "../common/dom.js";
import { figure } from "../common/figure.js";
import { milliseconds, short } from "../common/format.js";
import { processName } from "../common/names.js";
import { keys } from "../common/parts.js";
import { number } from "./context.js";

const kParts = [["forward_s", "var(--s0)"], ["backward_s", "var(--s4)"], ["update_s", "var(--s2)"], ["waiting_s", "var(--exposed)"]];

export function stepParts(ctx, rows) {
  const { t } = ctx;
  const traced = rows.filter((row) => row.run.trace?.workers.length);
  if (traced.length === 0) return null;
  const named = { forward_s: t.kinds.forward, backward_s: t.kinds.backward, update_s: t.kinds.update, waiting_s: t.kinds.wait, hidden_s: t.hidden, in_flight_s: t.inFlight, step_s: t.step };
  const part = (worker, name, colour) => ({ value: worker[name], colour, title: `${named[name]} ${milliseconds(worker[name])} ms` });
  const group = (row) => ({
    name: row.label,
    bars: row.run.trace.workers.flatMap((worker) => [
      { name: processName(t, worker.process), parts: kParts.map(([name, colour]) => part(worker, name, colour)), tick: worker.step_s, text: `${milliseconds(worker.step_s)} ms` },
      { thin: true, parts: [part(worker, "hidden_s", "var(--communication)"),
        { value: Math.max(0, worker.in_flight_s - worker.hidden_s), colour: "var(--exposed)", title: `${t.exposed} ${milliseconds(worker.in_flight_s - worker.hidden_s)} ms` }] }]),
  });
  const names = ["step_s", ...kParts.map(([name]) => name), "in_flight_s", "hidden_s"];
  const seen = kParts.filter(([name]) => traced.some((row) => row.run.trace.workers.some((worker) => worker[name] > 0)));
  return [keys([...seen.map(([name, colour]) => [colour, name === "waiting_s" ? t.waitingOrExposed : named[name]]), ["var(--communication)", t.hidden]]),
    figure({
      id: "step-parts", title: t.partsFigure, caption: t.partsCaption, texts: t,
      draw: (width) => bars({ width, groups: traced.map(group), text: (v) => `${short(v * 1000)} ms` }),
      data: () => [["strategy", "worker", "steps", ...names], ...traced.flatMap((row) => row.run.trace.workers.map((worker) => [row.label, worker.process, worker.steps, ...names.map((name) => worker[name])]))],
    }),
    h("details", {}, h("summary", {}, t.table), table(
      [{ title: t.strategy }, { title: t.process }, ...names.map((name) => ({ title: `${named[name]} ms`, number: true }))],
      traced.flatMap((row) => row.run.trace.workers.map((worker, i) => [row.label, processName(t, worker.process),
        ...names.map((name) => number(ctx, `rows.${row.index}.runs.0.trace.workers.${i}.${name}`, milliseconds))]))))];
}
