// What happens, in words: labels of messages, activities, and one sentence for each event with its reason.

import { bytes } from "../common/format.js";
import { processName } from "../common/names.js";

const kShownDelay = 5000;  // nanoseconds: a shorter delay reads 0.00 ms

export const unitsName = (scene, units) => {
  if (!units) return "";
  const names = scene.units.slice(units[0], units[1]).map((one) => one.name);
  return names.length > 3 ? `${names[0]} … ${names[names.length - 1]}` : names.join(" + ");
};
export const operation = (t, name) => t.operations[name] ?? name.replaceAll("_", "-");
const nameOf = (ctx, view, p) => processName(ctx.t, view.scene.processes[p].name);

/// Returns 'reduce-scatter h.1, 17 KiB, worker 2 → 3'.
export function messageLabel(ctx, view, frame) {
  const from = view.scene.processes[frame.from];
  const to = view.scene.processes[frame.to];
  const target = from.role === to.role ? String(to.rank) : nameOf(ctx, view, frame.to);
  const units = unitsName(view.scene, frame.units);
  return `${operation(ctx.t, frame.name)}${units ? ` ${units}` : ""}${ctx.t.listSep}${bytes(frame.bytes)}${ctx.t.listSep}${nameOf(ctx, view, frame.from)} → ${target}`;
}

/// Returns the activity of a process: its innermost one that is worth a word.
export function doingNow(ctx, view, process) {
  const shown = [...process.doing].reverse().find((one) => one.name !== "step");
  if (!shown) return process.doing.length ? ctx.t.between : ctx.t.idle;
  const unit = shown.unit === null ? "" : view.scene.units[shown.unit]?.name ?? "";
  const peer = shown.peer ? processName(ctx.t, shown.peer) : "";
  return ctx.t.doing(shown.name, unit, peer, operation(ctx.t, shown.name));
}

/// The facts that a sentence may use.
function facts(ctx, view, state, e, at) {
  const { scene } = view;
  const frame = e.frame === undefined ? null : view.index.frames[e.frame];
  const base = view.bases[e.p];
  const units = frame ? frame.units : e.units ?? (e.unit === undefined ? null : [e.unit, e.unit + 1]);
  return {
    e, frame, base,
    who: nameOf(ctx, view, e.p),
    other: frame ? nameOf(ctx, view, frame.from === e.p ? frame.to : frame.from) : e.peer ? processName(ctx.t, e.peer) : "",
    unit: unitsName(scene, units),
    size: e.bytes === undefined || Array.isArray(e.bytes) ? "" : bytes(e.bytes),
    parts: base.parts,
    inMesh: Boolean(scene.ownership?.mesh),
    turn: view.index.turns.get(at - 1),
    lasts: view.index.lasts.get(at - 1),
    isServer: scene.processes[e.p].role !== "worker",
    sizes: Array.isArray(e.bytes) ? bytes(e.bytes.reduce((a, b) => a + b, 0)) : "",
    cell: units ? state.cells[e.p][units[0]] : null,
    queued: frame && frame.departs - e.t >= kShownDelay ? ((frame.departs - e.t) / 1e6).toFixed(2) : null,
    operation: operation(ctx.t, frame?.name ?? e.name ?? ""),
    pass: [...state.processes[e.p].doing].reverse().find((one) => one.name === "backward") ? "backward" : null,
    phase: phaseOf(view, state, e),
    flops: scene.flops_per_second,
  };
}

function phaseOf(view, state, e) {
  const complete = state.cells[e.p].some((one) => one && one.gradient !== "empty");
  return complete ? "backward" : "forward";
}

/// Returns {file, line, function, text} of the source line that emits the event before position `at`; null: not recorded.
export function sourceOf(view, at) {
  const number = at === 0 ? undefined : view.scene.events[at - 1].source;
  return number === undefined ? null : view.scene.sources?.[number] ?? null;
}

/// Returns {what, why} of the event before position `at`.
export function sentence(ctx, view, state, at) {
  if (at === 0) return { what: ctx.t.atStart, why: ctx.t.atStartWhy(view.scene.events.length) };
  const e = view.scene.events[at - 1];
  const [what, why] = ctx.t.event(facts(ctx, view, state, e, at));
  return { what, why: why ?? "" };
}
