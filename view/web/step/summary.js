// All scenes of the page in one table: what a process keeps at its peak, what it sends in a step, how often it gathers a
// unit, and how long it waits. Numbers below or above those of the first scene have a colour.

import { h, table } from "../common/dom.js";
import { bytes } from "../common/format.js";
import { processName } from "../common/names.js";
import { kCategories } from "./timeline.js";

const kStates = [0, 1, 2];  // parameters, gradients, optimizer state
const kCommunication = kCategories.indexOf("communication");
const kLess = 0.9;  // a category counts as less from here on: padding differs with the strategy

const sum = (list) => list.reduce((a, b) => a + b, 0);

/// Returns a process's {peak, sends, gathers, waits}: bytes by category at its peak, bytes of the exchange in a step, all-gathers
/// of one unit in a step, and nanoseconds of waiting in a step.
function figuresOf(scene, p) {
  const found = { peak: [0, 0, 0, 0, 0], gathers: 0, waits: 0 };
  const gathers = new Map();
  for (const e of scene.events) {
    if (e.p !== p) continue;
    if (e.e === "memory" && sum(e.bytes) > sum(found.peak)) found.peak = e.bytes;
    else if (e.e === "report") found.waits += e.exposed_ns;
    else if (e.e === "start" && e.name === "all_gather" && e.units) {
      const key = `${e.step} ${e.units}`;
      gathers.set(key, (gathers.get(key) ?? 0) + 1);
    }
  }
  found.gathers = Math.max(0, ...gathers.values());
  found.gatherAt = scene.events.findIndex((e) => e.p === p && e.e === "start" && e.name === "all_gather" && e.units);
  found.sends = sum([scene.processes[p].sent].flat()) / scene.steps;
  found.waits /= scene.steps;
  return found;
}

function cell(name, value, base, text) {
  const look = value === base ? "" : value < base ? " good" : " warn";
  return h("td", { class: `n${look}`, "data-name": name, "data-value": value }, text(value), value === base ? "" : value < base ? " ↓" : " ↑");
}

/// A number of gathers is a button that leads to the first one.
function gathersCell(ctx, scene, name, figures, go) {
  if (figures.gathers === 0) return cell(name, 0, 0, () => "–");
  const said = ctx.t.goToGather(scene.label);
  const node = cell(name, figures.gathers, figures.gathers, () => "");
  node.append(h("button", { type: "button", id: name, title: said, "aria-label": `${figures.gathers}: ${said}`, onclick: () => go(figures.gatherAt + 1) }, `${figures.gathers} →`));
  return node;
}

/// Says of a worker what it keeps less than the first scene's, and what it pays for that; null: nothing.
function sentence(ctx, scene, now, first) {
  const { t } = ctx;
  const less = kStates.filter((c) => now.peak[c] < kLess * first.peak[c]).map((c) => t.categories[kCategories[c]]);
  const onTheWay = now.peak[kCommunication] - first.peak[kCommunication];
  const factor = first.sends > 0 ? Number((now.sends / first.sends).toPrecision(3)) : 1;
  if (less.length === 0 && factor === 1) return null;
  return t.saves(scene.label, less.join(t.listSep), factor, onTheWay > 0 ? bytes(onTheWay) : null, now.gathers > 1 ? now.gathers : null);
}

function row(ctx, scene, p, base, go) {
  const now = figuresOf(scene, p);
  const first = base ?? now;
  const name = (what) => `${scene.label}.${p}.${what}`;
  const factor = now.sends !== first.sends && first.sends > 0 ? ` (×${Number((now.sends / first.sends).toPrecision(3))})` : "";
  const sends = cell(name("sends"), now.sends, first.sends, (one) => bytes(one) + factor);
  const cells = [scene.label, processName(ctx.t, scene.processes[p].name), ...now.peak.map((one, c) => cell(name(kCategories[c]), one, first.peak[c], bytes)),
    cell(name("peak"), sum(now.peak), sum(first.peak), bytes), sends,
    gathersCell(ctx, scene, name("gathers"), now, go),
    cell(name("waits"), now.waits, now.waits, (ns) => (scene.processes[p].role === "worker" ? `${(ns / 1e6).toFixed(2)} ms` : "–"))];
  return { cells, figures: now };
}

/// Returns the table of all scenes: the first worker of each, and its first server; and a sentence on each scene. `go` takes
/// the number of a scene and a position, and shows it.
export function summary(ctx, scenes, go) {
  const { t } = ctx;
  let base = null;
  const said = [];
  const rows = scenes.flatMap((scene, k) => ["worker", "server"].map((role) => scene.processes.findIndex((one) => one.role === role)).filter((p) => p >= 0).map((p) => {
    const isWorker = scene.processes[p].role === "worker";
    const made = row(ctx, scene, p, isWorker ? base : null, (at) => go(k, at));
    if (isWorker && base !== null) said.push(sentence(ctx, scene, made.figures, base));
    if (base === null) base = made.figures;
    return made.cells;
  }));
  const number = (title) => ({ title, number: true });
  return h("details", { open: true, id: "summary" }, h("summary", {}, t.allScenes),
    table([{ title: t.scene }, { title: t.process }, ...kCategories.map((name) => number(t.categories[name])), number(t.peakSum), number(t.sendsInStep), number(t.gathersInStep), number(t.waitsInStep)], rows),
    said.some(Boolean) ? h("ul", { id: "says" }, said.filter(Boolean).map((text) => h("li", {}, text))) : null,
    h("p", { class: "quiet" }, t.summaryLegend(scenes[0].label)));
}
