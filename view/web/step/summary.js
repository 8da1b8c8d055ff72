// All scenes of the page in one table: what a process keeps at its peak, what it sends in a step, when it gathers a unit, and
// how long it waits. Numbers below or above those of the first scene with the same options have a colour. Below, a sentence on
// each scene.

import { h, table } from "../common/dom.js";
import { bytes } from "../common/format.js";
import { processName } from "../common/names.js";
import { figuresOf, otherOptions, sum } from "./figures.js";
import { categoriesOf } from "./timeline.js";

const kNames = ["parameters", "gradients", "optimizer", "activations", "communication"];  // in the order of an event's bytes
const kKept = [0, 1, 2, 3];  // what a strategy saves
const kGrowing = [...kKept, 4];
const nameOf = (c) => kNames[c];
const kLess = 0.9;  // a category counts as less from here on: padding differs with the strategy
const kSameWait = 0.02;  // waits that differ by a smaller share count as equal
const kMostButtons = 4;

const timesOf = (a, b) => (b > 0 ? Number((a / b).toPrecision(3)) : 1);
const milliseconds = (ns) => `${(ns / 1e6).toFixed(2)} ms`;
const isSameWait = (a, b) => Math.abs(a - b) <= kSameWait * Math.max(a, b);

function cell(name, value, base, text) {
  const look = value === base ? "" : value < base ? " good" : " warn";
  return h("td", { class: `n${look}`, "data-name": name, "data-value": value }, text(value), value === base ? "" : value < base ? " ↓" : " ↑");
}

/// The gathers of a unit are buttons: each says to which phase the gather belongs, and leads there.
function gathersCell(ctx, scene, name, { gathers }, go) {
  if (gathers.length === 0) return cell(name, 0, 0, () => "–");
  const node = cell(name, gathers.length, gathers.length, (n) => `${n}: `);
  gathers.slice(0, kMostButtons).forEach(({ at, pass }, k) => node.append(h("button", { type: "button", id: k === 0 ? name : `${name}.${k + 1}`,
    title: ctx.t.goToGather(scene.label, k + 1, gathers.length), onclick: () => go(at + 1) }, `${ctx.t.kinds[pass]} →`), " "));
  if (gathers.length > kMostButtons) node.append("…");
  return node;
}

function waitsCell(name, now, first) {
  if (now.waits === null) return cell(name, 0, 0, () => "–");
  return cell(name, now.waits, isSameWait(now.waits, first.waits) ? now.waits : first.waits, milliseconds);
}

/// Says of a worker what it keeps less than that of `base`, and what it pays for that; null: nothing differs.
function sentence(ctx, scene, now, base) {
  const first = base.figures;
  const less = kKept.filter((c) => now.peak[c] < kLess * first.peak[c]).map((c) => [nameOf(c), bytes(first.peak[c] - now.peak[c])]);
  const more = kGrowing.filter((c) => kLess * now.peak[c] > first.peak[c]).map((c) => [nameOf(c), bytes(now.peak[c] - first.peak[c])]);
  const lower = sum(first.peak) - sum(now.peak);
  const factor = timesOf(now.sends, first.sends);
  const waits = isSameWait(now.waits, first.waits) ? null : { now: milliseconds(now.waits), first: milliseconds(first.waits) };
  if (less.length === 0 && more.length === 0 && factor === 1 && !waits) return null;
  return ctx.t.saves({ label: scene.label, base: base.scene.label, less, more, factor, waits, sends: bytes(now.sends), sent: bytes(first.sends),
    passes: now.gathers.map((one) => one.pass), lower: bytes(Math.abs(lower)), isLower: lower >= 0 });
}

function row(ctx, scene, p, now, first, categories, go) {
  const name = (what) => `${scene.label}.${p}.${what}`;
  const factor = now.sends !== first.sends && first.sends > 0 ? ` (×${timesOf(now.sends, first.sends)})` : "";
  return [scene.label, processName(ctx.t, scene.processes[p].name), ...categories.map((category, c) => cell(name(category), now.peak[c] ?? 0, first.peak[c] ?? 0, bytes)),
    cell(name("peak"), sum(now.peak), sum(first.peak), bytes), cell(name("sends"), now.sends, first.sends, (one) => bytes(one) + factor),
    waitsCell(name("waits"), now, first), gathersCell(ctx, scene, name("gathers"), now, go)];
}

/// Finds the scene with which another is compared: the first of `bases` with the same options. A scene without one joins
/// `bases`, but a job that loses a process repeats steps, and is compared with none. Returns {base, said}: `said` is the sentence
/// on the scene, or null.
function compare(ctx, scene, figures, bases) {
  if ((scene.job?.fault ?? "").includes("kill")) return { base: { scene, figures }, said: ctx.t.repeats(scene.label) };
  const base = bases.find((one) => otherOptions(scene, one.scene).length === 0);
  if (base) return { base, said: sentence(ctx, scene, figures, base) };
  bases.push({ scene, figures });
  return { base: bases[bases.length - 1], said: bases.length > 1 ? ctx.t.notCompared(scene.label, bases[0].scene.label, otherOptions(scene, bases[0].scene)) : null };
}

/// Returns the table of all scenes: the first worker of each, and its first server; and a sentence on each scene. `go` takes
/// the number of a scene and a position, and shows it.
export function summary(ctx, scenes, go) {
  const { t } = ctx;
  const categories = categoriesOf(scenes);
  const bases = [];
  const said = [];
  const rows = scenes.flatMap((scene, k) => {
    const [worker, server] = ["worker", "server"].map((role) => scene.processes.findIndex((one) => one.role === role));
    return [worker, server].filter((p) => p >= 0).map((p) => {
      const now = figuresOf(scene, p);
      if (p !== worker) return row(ctx, scene, p, now, now, categories, (at) => go(k, at));
      const found = compare(ctx, scene, now, bases);
      said.push(found.said);
      return row(ctx, scene, p, now, found.base.figures, categories, (at) => go(k, at));
    });
  });
  const number = (title) => ({ title, number: true });
  const legend = [t.summaryLegend, ...(scenes.length > 1 && bases.length > 0 ? [t.summaryCompared(bases.map((one) => one.scene.label))] : [])];
  return h("details", { open: true, id: "summary" }, h("summary", {}, t.allScenes),
    table([{ title: t.scene }, { title: t.process }, ...categories.map((name) => number(t.categories[name])), number(t.peakSum), number(t.sendsInStep), number(t.waitsInStep), number(t.gathersInStep)], rows),
    said.some(Boolean) ? h("ul", { id: "says" }, said.filter(Boolean).map((text) => h("li", {}, text))) : null,
    h("p", { class: "quiet" }, legend.join(t.sentenceSep)));
}
