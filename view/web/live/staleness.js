// Asynchrony: the updates that gradients missed.

import { lines } from "../common/charts.js";
import { figure } from "../common/figure.js";
import { short, whole } from "../common/format.js";
import { section } from "../common/parts.js";
import { isStale } from "./numbers.js";

export function staleness(ctx) {
  const { t } = ctx;
  const series = () => ctx.snapshot.series;
  const drawn = figure({ id: "staleness-steps", title: t.stalenessFigure, caption: t.stalenessCaption, texts: t, readout: true,
    draw: (width, say, held) => lines({ width, height: 200, zero: true, say, held, xTitle: ctx.axis === "step" ? t.step : t.seconds, yTitle: t.missed,
      xText: ctx.axis === "step" ? whole : short, yText: short, series: [{ name: t.staleness, colour: "var(--s4)", x: series()[ctx.axis], y: series().staleness }] }),
    data: () => [["step", "time_s", "staleness"], ...series().step.map((step, i) => [step, series().time_s[i], series().staleness[i]])] });
  return { id: "staleness", node: section("staleness", t.stalenessTitle, drawn), has: isStale, update: () => drawn.redraw() };
}
