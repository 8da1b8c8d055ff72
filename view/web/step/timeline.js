// The time axis of a scene: each process's computing, waiting and transfers; the memory of one process; the bytes so far
// against the prediction. Drawn once; a step moves only the cursor.

import { s } from "../common/dom.js";
import { bytes, byteTicks, ticks } from "../common/format.js";
import { processName } from "../common/names.js";

const kLane = 22;
const kCurve = 96;
const kGap = 30;
const kCategories = ["parameters", "gradients", "optimizer", "activations", "communication"];
/// Returns the categories of memory that scenes show, in the order of an event's bytes.
export const categoriesOf = (scenes) => (scenes.some((scene) => scene.units.some((one) => one.table)) ? [...kCategories, "index"] : kCategories);
const kLooks = { forward: "var(--compute)", backward: "var(--optimizer)", update: "var(--gradients)", other: "var(--staging)", wait: "var(--bad)", transfer: "var(--s6)" };
const kShown = new Set(["forward", "backward", "update", "wait", "transfer"]);

export const lookOf = (kind) => kLooks[kShown.has(kind) ? kind : "other"];

/// One path for all intervals of a kind: a scene of 10,000 events stays a small drawing.
function lanes(view, x, top) {
  const paths = new Map();
  view.index.intervals.forEach((list, p) => {
    for (const one of list) {
      const kind = kShown.has(one.kind) ? one.kind : "other";
      const [y, height] = kind === "transfer" ? [top + p * kLane + 14, 4] : [top + p * kLane + 3, 10];
      const x1 = x(one.from);
      paths.set(kind, (paths.get(kind) ?? "") + `M${x1.toFixed(2)} ${y}h${Math.max(0.6, x(one.to) - x1).toFixed(2)}v${height}H${x1.toFixed(2)}z`);
    }
  });
  // Waiting is drawn above the activity that waits.
  return ["transfer", "other", "forward", "backward", "update", "wait"].filter((kind) => paths.has(kind))
    .map((kind) => s("path", { d: paths.get(kind), fill: lookOf(kind), "fill-opacity": kind === "wait" ? 0.75 : kind === "transfer" ? 0.6 : 1 }));
}

function stairs(points, x, y) {
  let path = "";
  points.forEach((point, k) => (path += k === 0 ? `M${x(point.t).toFixed(1)} ${y(point.v).toFixed(1)}` : `H${x(point.t).toFixed(1)}V${y(point.v).toFixed(1)}`));
  return path;
}

/// Returns the scale of drawings that stand side by side, so that the reader may compare them: the most memory of their
/// processes, the most bytes, and, if `byTime`, the end of the longest; `shown` are pairs of a view and a process.
export function scaleOf(shown, byTime) {
  const memory = shown.flatMap(([view, process]) => view.index.memory[process].map((one) => one.bytes.reduce((a, b) => a + b, 0)));
  const bytesOf = ({ predicted, bytes: curve }) => Math.max(predicted ?? 0, curve[curve.length - 1].sum);
  return { memory: Math.max(1, ...memory), bytes: Math.max(1, ...shown.map(([view]) => bytesOf(view.index))),
    end: byTime ? Math.max(...shown.map(([view]) => view.index.end)) : null };
}

function memoryCurve(view, process, x, top, most) {
  const points = view.index.memory[process];
  const { end } = view.index;
  const y = (value) => top + kCurve - (value / most) * kCurve;
  const areas = categoriesOf([view.scene]).map((name, c) => {
    const upTo = (one, last) => one.bytes.slice(0, last + 1).reduce((a, b) => a + b, 0);
    const upper = stairs(points.map((one) => ({ t: one.t, v: upTo(one, c) })), x, y) + `H${x(end).toFixed(1)}`;
    return s("path", { d: `${upper}V${top + kCurve}H${x(0)}z`, fill: `var(--${name})` });
  }).reverse();
  return [areas, axis(byteTicks(most, 3), y, x)];
}

function bytesCurve(view, x, top, total) {
  const { predicted, bytes: curve, end } = view.index;
  const most = total * 1.04;
  const y = (value) => top + kCurve - (value / most) * kCurve;
  const line = stairs(curve.map((one) => ({ t: one.t, v: one.sum })), x, y) + `H${x(end).toFixed(1)}`;
  return [axis(byteTicks(most, 3), y, x), s("path", { d: line, fill: "none", stroke: "var(--accent)", "stroke-width": 2 }),
    predicted === null ? null : s("line", { x1: x(0), x2: x(end), y1: y(predicted), y2: y(predicted), stroke: "var(--text)", "stroke-dasharray": "5 4" })];
}

const axis = (values, y, x) => values.map((value) => [
  s("line", { x1: x(0), x2: x(x.end), y1: y(value), y2: y(value), stroke: "var(--line)", "stroke-opacity": 0.7 }),
  s("text", { x: x(0) - 4, y: y(value) + 4, class: "letter", "text-anchor": "end" }, bytes(value)),
]);

/// Returns {node, move}: the drawing, and a function that moves the cursor to time `t`; `hides`: the future is not shown.
/// `seek` is called with a time that the reader points at; `scale` is that of `scaleOf`.
export function timeline(ctx, view, width, process, { seek, scale }) {
  const { t } = ctx;
  const { scene, index } = view;
  const left = 72;
  const end = (scale.end ?? index.end) || 1;
  const x = Object.assign((time) => left + (time / end) * (width - left - 10), { end });
  const lanesEnd = 16 + scene.processes.length * kLane;
  const memoryTop = lanesEnd + kGap;
  const bytesTop = memoryTop + kCurve + kGap;
  const height = bytesTop + kCurve + 30;
  const cursor = s("line", { y1: 10, y2: bytesTop + kCurve, stroke: "var(--text)", "stroke-width": 1.5 });
  const veil = s("rect", { y: 10, height: bytesTop + kCurve - 9, fill: "var(--back)" });
  const at = (event, node) => {
    const box = node.getBoundingClientRect();
    return Math.max(0, Math.min(end, (((event.clientX - box.left) / box.width) * width - left) / (width - left - 10) * end));
  };
  const node = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": t.timeLabel, class: "timeline",
      onpointerdown: (event) => seek(at(event, event.currentTarget)),
      onpointermove: (event) => event.buttons === 1 && seek(at(event, event.currentTarget)) },
    index.phases.map((one, k) => {
      const x1 = x(one.t);
      const x2 = x(index.phases[k + 1]?.t ?? index.end);
      if (x2 - x1 < 1) return null;
      return [one.phase === "start" ? null : s("line", { x1, x2: x1, y1: 12, y2: bytesTop + kCurve, stroke: "var(--line)" }),
        x2 - x1 > 58 ? s("text", { x: x1 + 3, y: 10, class: "letter" }, t.phases[one.phase]) : null];
    }),
    scene.processes.map((one, p) => s("text", { x: 2, y: 16 + p * kLane + 12, class: "letter" }, processName(t, one.name))),
    lanes(view, x, 16),
    memoryCurve(view, process, x, memoryTop, scale.memory),
    bytesCurve(view, x, bytesTop, scale.bytes),
    ticks(0, end / 1e6, Math.max(2, Math.floor((width - left) / 90))).map((ms) => s("text", { x: x(ms * 1e6), y: bytesTop + kCurve + 15, class: "letter", "text-anchor": "middle" }, `${ms}`)),
    s("text", { x: width - 10, y: bytesTop + kCurve + 28, class: "letter", "text-anchor": "end" }, t.milliseconds),
    veil,
    s("text", { x: left, y: memoryTop - 7, class: "process" }, t.memoryOf(processName(t, scene.processes[process].name))),
    s("text", { x: left, y: bytesTop - 7, class: "process" }, t.bytesSoFar),
    cursor);
  const move = (time, hides) => {
    cursor.setAttribute("x1", x(time));
    cursor.setAttribute("x2", x(time));
    veil.setAttribute("x", x(time));
    veil.setAttribute("width", hides ? Math.max(0, width - x(time)) : 0);
  };
  return { node, move };
}
