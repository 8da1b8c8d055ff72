// The bytes of whole units within one step: gathered parameters and unreduced gradients come and go with the passes.

import { lines } from "../common/charts.js";
import { figure } from "../common/figure.js";
import { bytes, byteTicks, short } from "../common/format.js";
import { processName } from "../common/names.js";

/// A value holds until the next one: each becomes two points.
function steps(at, values, end) {
  const x = [];
  const y = [];
  at.forEach((time, i) => {
    x.push(time * 1000, (at[i + 1] ?? end) * 1000);
    y.push(values[i], values[i]);
  });
  return { x, y };
}

/// Returns the figure of a row; null if its trace has no whole units.
export function memoryWithin(ctx, row) {
  const { t } = ctx;
  const { trace } = row.run;
  if (!trace) return null;
  const process = Object.keys(trace.whole_units).sort().find((name) => trace.whole_units[name]?.at.length > 0);
  if (!process) return null;
  const own = trace.whole_units[process];
  const curve = (name, values, colour) => ({ name, colour, ...steps(own.at, values, trace.duration_s) });
  const passes = trace.slices.filter(([name, kind]) => name === process && (kind === "forward" || kind === "backward"));
  return figure({
    id: `memory-within-${row.index}`, title: `${row.label}${t.colon}${t.stepOf(trace.step)}${t.listSep}${processName(t, process)}`, texts: t, readout: true,
    draw: (width, say) => lines({
      width, height: 240, zero: true, xTitle: t.ms, yTitle: "", xText: short, yText: bytes, yTicks: (least, most, count) => byteTicks(most, count), say,
      bands: passes.map(([, kind, unit, begin, duration]) => ({ from: Math.max(0, begin) * 1000, to: Math.min(trace.duration_s, begin + duration) * 1000, colour: kind === "forward" ? "var(--s0)" : "var(--s4)", name: `${t.kinds[kind]} ${unit}` })),
      series: [curve(t.wholeParameters, own.parameters, "var(--parameters)"), curve(t.wholeGradients, own.gradients, "var(--gradients)")],
    }),
    data: () => [["process", "at_s", "parameters_bytes", "gradients_bytes"], ...own.at.map((at, i) => [process, at, own.parameters[i], own.gradients[i]])],
  });
}
