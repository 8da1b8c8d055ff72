// Loss, quality, speed and the time of a step, over steps or over seconds.

import { lines } from "../common/charts.js";
import { h } from "../common/dom.js";
import { figure } from "../common/figure.js";
import { short, whole } from "../common/format.js";
import { keys, section } from "../common/parts.js";
import { rate, some } from "./numbers.js";

const of = (list, field) => (list ?? []).map((one) => one[field]);

/// Series of a snapshot by figure: {name, colour, step, time_s, y, marks}.
const kSeries = {
  loss: (t, { series, evaluations }) => [
    { name: t.trainingLoss, colour: "var(--s0)", step: series.step, time_s: series.time_s, y: series.loss },
    { name: t.testLoss, colour: "var(--s1)", step: of(evaluations, "step"), time_s: of(evaluations, "time_s"), y: of(evaluations, "test_loss"), marks: true },
  ],
  quality: (t, { evaluations }) => {
    const own = Object.keys(evaluations?.[0]?.own ?? {})[0];
    const field = some(evaluations, "test_perplexity") ? "test_perplexity" : "test_accuracy";
    const [name, y] = own ? [t.test(own.slice("test_".length)), of(of(evaluations, "own"), own)] : [t[field], of(evaluations, field)];
    return [{ name, colour: "var(--s2)", step: of(evaluations, "step"), time_s: of(evaluations, "time_s"), y, marks: true }];
  },
  speed: (t, { series }) => [{ name: t.samples, colour: "var(--s2)", step: series.step, time_s: series.time_s, y: series.samples_per_second }],
  "step-time": (t, { series }) => [
    { name: t.stepTime, colour: "var(--s0)", step: series.step, time_s: series.time_s, y: series.step_s.map((v) => (v == null ? null : v * 1000)) },
    { name: t.exposed, colour: "var(--exposed)", step: series.step, time_s: series.time_s, y: series.exposed_s.map((v) => (v == null ? null : v * 1000)) },
  ],
};
const kFromZero = ["speed", "step-time"];
const kEnough = 20;  // points; then the first step, which starts everything up, is left out of the drawing of times

const drawn = (id, one) => (id === "step-time" && one.step[0] === 0 && one.step.length >= kEnough
  ? { ...one, step: one.step.slice(1), time_s: one.time_s.slice(1), y: one.y.slice(1) } : one);

const known = (list) => list.filter((one) => one.y.some((v) => v != null));

function chart(ctx, id, yTitle) {
  const { t } = ctx;
  const all = () => (ctx.snapshot ? known(kSeries[id](t, ctx.snapshot)) : []);
  const legend = h("div");
  const node = figure({
    id, title: t.figures[id], texts: t, readout: true, caption: id === "step-time" ? t.withoutFirst : null,
    draw: (width, say, held) => lines({
      width, height: 230, zero: kFromZero.includes(id), say, held, yTitle: id === "quality" ? all()[0]?.name : yTitle, xTitle: ctx.axis === "step" ? t.step : t.seconds,
      xText: ctx.axis === "step" ? whole : short, yText: id === "speed" ? rate : short,
      series: all().map((one) => drawn(id, one)).map((one) => ({ ...one, x: one[ctx.axis] })),
    }),
    data: () => [["curve", "step", "time_s", "value"], ...all().flatMap((one) => one.y.map((v, i) => [one.name, one.step[i], one.time_s[i], v]))],
  });
  node.insertBefore(legend, node.querySelector(".box"));
  let named = "";
  const update = () => {
    const list = all();
    node.hidden = list.length === 0;
    const names = list.length > 1 ? list.map((one) => one.name).join("\n") : "";
    if (names !== named) legend.replaceChildren(...(names ? [keys(list.map((one) => [one.colour, one.name]))] : []));
    named = names;
    if (!node.hidden) node.redraw();
  };
  return { node, update };
}

export function curves(ctx) {
  const { t } = ctx;
  const charts = [["loss", t.loss], ["quality", ""], ["speed", t.samples], ["step-time", t.ms]].map(([id, yTitle]) => chart(ctx, id, yTitle));
  const update = () => charts.forEach((one) => one.update());
  const buttons = [["step", t.overSteps], ["time_s", t.overSeconds]].map(([axis, text]) => {
    const button = h("button", { type: "button", id: `over-${axis}`, "aria-pressed": String(ctx.axis === axis), onclick: () => {
      ctx.axis = axis;
      buttons.forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
      update();
    } }, text);
    return button;
  });
  const node = section("curves", t.curvesTitle,
    h("div", { class: "choose", role: "group", "aria-label": t.curvesTitle }, buttons, h("span", { class: "quiet" }, t.keyboard)),
    h("div", { class: "pair" }, charts.map((one) => one.node)));
  return { id: "curves", node, has: (snapshot) => snapshot.series.step.length > 0, update };
}
