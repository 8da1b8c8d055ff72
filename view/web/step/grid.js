// The grid: rows are processes, columns are units; each cell has a bar for parameters, gradients and optimizer state.
// Messages in flight are arrows from the sender's row to the receiver's.

import { s } from "../common/dom.js";
import { processName } from "../common/names.js";
import { barsOf } from "./cells.js";
import { doingNow, messageLabel } from "./says.js";

const kRow = 62;
const kHead = 24;
const kLetters = [["parameters", "P"], ["gradients", "G"], ["optimizer", "OS"]];
const kWork = new Set(["forward", "backward", "update", "push_pull", "push"]);  // what frames the cell of its unit

export const versionColour = (version) => `var(--s${version % 8})`;

/// Returns {name, cell}: the widths of the columns, for a drawing as wide as `width` if the units fit.
function widths(width, units) {
  const name = width < 500 ? 92 : 150;
  return { name, cell: Math.max(72, Math.floor((width - name) / units)) };
}

const kFill = { empty: 0, computing: 0.25, complete: 0.5, averaged: 1, full: 1, arriving: 0.15 };

function bar(x, y, width, base, one) {
  const whole = { x, y, width, height: 9, rx: 2 };
  if (one.extent === "none") return s("line", { x1: x, x2: x + 8, y1: y + 4.5, y2: y + 4.5, stroke: "var(--quiet)", "stroke-width": 1 });
  const { slices = 1, slice = 0 } = base;
  const wide = width / slices;
  const part = one.extent === "batch" ? { ...whole, width: wide / 4 }
    : one.extent === "part" ? { ...whole, x: x + slice * wide + (wide * base.place) / base.parts, width: Math.max(2, wide / base.parts) }
    : { ...whole, x: x + slice * wide, width: wide };
  return s("g", {},
    one.extent === "batch" ? null : s("rect", { ...whole, fill: "none", stroke: "var(--line)" }),
    s("rect", { ...part, fill: versionColour(one.version), "fill-opacity": kFill[one.look], stroke: versionColour(one.version),
      "stroke-dasharray": one.look === "arriving" || one.look === "computing" ? "3 2" : null }));
}

const basesOf = (view, unit) => (view.scene.units[unit].table ? view.tableBases : view.bases);

/// Describes everything that a cell shows, as a list without objects: two equal lists are the same picture.
function cellFacts(view, state, p, unit) {
  const one = state.cells[p][unit];
  if (one === null) return null;
  const bars = barsOf(basesOf(view, unit)[p], one, view.scene.units[unit].trained);
  const process = state.processes[p];
  const isWorking = process.doing.some((what) => what.unit === unit && kWork.has(what.name));
  return { bars, isWorking, isHere: process.life === "here", version: one.version, pushes: one.pushes };
}
const cellKey = (facts) => (facts === null ? "none" : keyOf(facts));
const keyOf = ({ bars, isWorking, isHere, version, pushes }) =>
  kLetters.map(([name]) => `${bars[name].extent} ${bars[name].look} ${bars[name].version}`).join() + ` ${isWorking} ${isHere} ${version} ${pushes}`;

function cell(ctx, view, facts, p, unit, x, y, width) {
  if (facts === null) return s("g", {});
  const { t } = ctx;
  const base = basesOf(view, unit)[p];
  const { bars, isWorking } = facts;
  const { slices = 1 } = base;
  const extent = (one) => (one === "whole" && slices > 1 ? t.extents.part(slices) : t.extents[one](base.parts * slices));
  const text = kLetters.map(([name, letter]) => `${letter} ${extent(bars[name].extent)}${name === "gradients" ? `, ${t.looks[bars[name].look] ?? ""}` : ""}`).join("; ");
  return s("g", { "data-cell": `${p}.${unit}`, opacity: facts.isHere ? 1 : 0.25 },
    s("title", {}, `${view.scene.processes[p].name}, ${view.scene.units[unit].name}: ${text}; ${t.version} ${facts.version}`),
    s("rect", { x: x + 2, y: y + 2, width: width - 4, height: kRow - 6, rx: 5, fill: "var(--raised)", stroke: isWorking ? "var(--accent)" : "var(--line)", "stroke-width": isWorking ? 2 : 1 }),
    kLetters.map(([name, letter], k) => [
      s("text", { x: x + 7, y: y + 16 + k * 14, class: "letter" }, letter),
      bar(x + 28, y + 8 + k * 14, width - 36, base, bars[name]),
    ]),
    s("text", { x: x + width - 7, y: y + kRow - 7, class: "letter", "text-anchor": "end" },
      facts.pushes > 0 ? t.pushes(facts.pushes) + " · " : "", `v${facts.version}`));
}

function rowFacts(ctx, view, state, p) {
  const process = state.processes[p];
  return { life: process.life, doing: process.life === "here" ? doingNow(ctx, view, process) : ctx.t.lives[process.life],
    step: process.life === "here" && view.scene.processes[p].role === "worker" ? process.step : null };
}
const rowKey = ({ life, doing, step }) => `${life} ${doing} ${step}`;

function rowName(ctx, view, facts, p, y, width) {
  const most = Math.floor((width - 12) / 6);
  const cut = (text) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  const name = view.scene.processes[p].name;
  return s("g", {}, s("title", {}, `${name}: ${facts.doing}. ${ctx.t.kill(name)}`),
    s("text", { x: 6, y: y + 17, class: "process" }, cut(name)),
    s("text", { x: 6, y: y + 33, class: facts.life === "dead" ? "letter bad" : "letter" }, cut(facts.doing)),
    facts.step === null ? null : s("text", { x: 6, y: y + 48, class: "letter" }, `${ctx.t.step} ${facts.step}`));
}

/// Messages side by side do not hide each other: each pair of rows has a lane of its own.
function arrow(ctx, view, state, frame, geometry, lane, isNew) {
  const { name, cell: width } = geometry;
  const units = frame.units ?? [0, view.scene.units.length];
  const x = name + ((units[0] + units[1]) / 2) * width + (lane - 1.5) * 9;
  const middle = (p) => kHead + p * kRow + kRow / 2;
  const y1 = middle(frame.from);
  const y2 = middle(frame.to);
  const bend = Math.min(width / 2 - 6, 16 + 6 * Math.abs(frame.to - frame.from)) * (frame.to > frame.from ? 1 : -1);
  const path = `M${x} ${y1} C${x + bend} ${y1} ${x + bend} ${y2} ${x} ${y2}`;
  const waits = state.t < frame.departs;
  const part = frame.arrives === null || frame.arrives === frame.departs ? 0 : Math.max(0, Math.min(1, (state.t - frame.departs) / (frame.arrives - frame.departs)));
  const at = (a, b) => (1 - part) ** 3 * a[0] + 3 * (1 - part) ** 2 * part * a[1] + 3 * (1 - part) * part ** 2 * b[1] + part ** 3 * b[0];
  const colour = frame.exchange ? "var(--text)" : "var(--quiet)";
  return s("g", { class: "arrow", "data-frame": frame.number }, s("title", {}, messageLabel(ctx, view, frame)),
    s("path", { d: path, fill: "none", stroke: isNew ? "var(--accent)" : colour, "stroke-width": isNew ? 3 : 1.4, "stroke-dasharray": waits ? "2 4" : null, "marker-end": `url(#head-${ctx.pane}${isNew ? "-new" : ""})` }),
    waits ? null : s("circle", { cx: at([x, x + bend], [x, x + bend]), cy: at([y1, y1], [y2, y2]), r: 4, fill: isNew ? "var(--accent)" : colour }));
}

const head = (id, colour) => s("marker", { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto", markerUnits: "userSpaceOnUse" },
  s("path", { d: "M0 0 L8 4 L0 8 z", fill: colour }));

/// Draws the arrows of the messages in flight, and of a message that has just arrived.
function arrows(ctx, view, state, event, geometry) {
  const frames = state.flying.map((number) => view.index.frames[number]);
  if (event?.e === "arrive") frames.push(view.index.frames[event.frame]);
  const lanes = new Map();
  const laneOf = (frame) => {
    const key = `${frame.from} ${frame.units}`;
    lanes.set(key, (lanes.get(key) ?? 0) + 1);
    return lanes.get(key) % 4;
  };
  return frames.filter(Boolean).map((frame) => arrow(ctx, view, state, frame, geometry, laneOf(frame), event?.frame === frame.number));
}

/// A drawing that is replaced only when its key changes: a step changes a few of a hundred cells.
function makePart(draw) {
  const part = { node: s("g"), key: null };
  part.update = (key, facts) => {
    if (key === part.key) return;
    const node = draw(facts);
    part.node.replaceWith(node);
    Object.assign(part, { node, key });
  };
  return part;
}

/// A row's name is a button that kills the process. It stays while its texts are replaced, so that it keeps the focus.
function killButton(ctx, view, p, geometry, part, kill) {
  const label = ctx.t.kill(processName(ctx.t, view.scene.processes[p].name));
  const press = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    kill(p);
  };
  return s("g", { class: "kill", role: "button", tabindex: "0", id: `kill-${ctx.pane}-${p}`, "aria-label": label, onclick: () => kill(p), onkeydown: press },
    s("rect", { x: 1, y: kHead + p * kRow + 2, width: geometry.name - 6, height: kRow - 6, rx: 5 }), part.node);
}

/// Returns {node, update}. `update` shows a state at position `at`; the event before the position is drawn strongest.
/// `kill` is called with the process whose name was pressed.
export function makeGrid(ctx, view, width, kill) {
  const { scene } = view;
  const geometry = widths(width, scene.units.length);
  const total = geometry.name + geometry.cell * scene.units.length;
  const height = kHead + kRow * scene.processes.length;
  const rows = scene.processes.map((_, p) => makePart((facts) => rowName(ctx, view, facts, p, kHead + p * kRow, geometry.name)));
  const cells = scene.processes.map((_, p) => scene.units.map((__, u) =>
    makePart((facts) => cell(ctx, view, facts, p, u, geometry.name + u * geometry.cell, kHead + p * kRow, geometry.cell))));
  const flying = s("g");
  const node = s("svg", { width: total, height, viewBox: `0 0 ${total} ${height}`, role: "group", "aria-label": ctx.t.gridLabel, class: "grid" },
    s("defs", {}, head(`head-${ctx.pane}`, "var(--text)"), head(`head-${ctx.pane}-new`, "var(--accent)")),
    scene.units.map((unit, u) => s("text", { x: geometry.name + (u + 0.5) * geometry.cell, y: 16, "text-anchor": "middle", class: "process" }, unit.name)),
    scene.processes.map((_, p) => [killButton(ctx, view, p, geometry, rows[p], kill), cells[p].map((one) => one.node)]), flying);
  const update = (state, at) => {
    scene.processes.forEach((_, p) => {
      const facts = rowFacts(ctx, view, state, p);
      rows[p].update(rowKey(facts), facts);
      cells[p].forEach((part, u) => {
        const one = cellFacts(view, state, p, u);
        part.update(cellKey(one), one);
      });
    });
    flying.replaceChildren(...arrows(ctx, view, state, at > 0 ? scene.events[at - 1] : null, geometry));
  };
  return { node, update };
}
