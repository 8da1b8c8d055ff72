// Who owns which range of every unit.

import { cut, label, panels, widthOf } from "../common/charts.js";
import { h, s } from "../common/dom.js";
import { figure } from "../common/figure.js";
import { whole } from "../common/format.js";
import { section, swatch } from "../common/parts.js";
import { flows } from "./flows.js";

const kMostProcesses = 8;
const kLeastUnit = 9;  // pixels; narrower units are drawn as one
const kStates = [["parameters", "P"], ["gradients", "G"], ["optimizer", "OS"]];
const [kBar, kGap, kRow] = [5, 1, 24];

/// Returns the processes that are drawn, and {role, more} where some are left out. In a mesh the part of a process is one
/// of its tensor rank's slice: [slice, slice + sliceShare) of each unit of its stage.
function processes(own) {
  const list = [];
  const mesh = own.mesh ?? { data: own.workers, tensor: 1, pipeline: 1 };
  const each = mesh.tensor * mesh.pipeline;
  const add = (role, count, parts, shares) => {
    const shown = Math.min(count, kMostProcesses);
    let begin = 0;
    for (let rank = 0; rank < shown; ++rank) {
      const share = shares ? shares[rank] : 1 / parts;
      const part = Math.floor(rank / each) % parts;
      const of = shares ? `${(100 * share).toFixed(1)} %` : `${part + 1}/${parts}`;
      const slice = (rank % mesh.tensor) / mesh.tensor;
      list.push({ role, rank, states: own[role], part, parts, begin: shares ? begin : slice + (part * share) / mesh.tensor, share: share / mesh.tensor, of,
                  slice, sliceShare: 1 / mesh.tensor, tensor: rank % mesh.tensor, stage: Math.floor(rank / mesh.tensor) % mesh.pipeline, copy: Math.floor(rank / each) });
      begin += share;
    }
    if (count > shown) list.push({ role, more: count - shown });
  };
  add("worker", own.workers, own.parts);
  if (own.server) add("server", own.servers, own.servers / each, own.shares);
  return list;
}

/// Returns the units with their places on a line; all units as one if they are too many for its width.
function places(units, x0, width) {
  const all = units.reduce((sum, unit) => sum + unit.elements, 0);
  if (units.length < 2 || width / units.length < kLeastUnit) return [{ name: "", elements: all, x: x0, width, units }];
  const room = width - units.length * kLeastUnit;
  let x = x0;
  return units.map((unit) => {
    const wide = kLeastUnit + (room * unit.elements) / all;
    const place = { ...unit, x, width: wide - 3 };
    x += wide;
    return place;
  });
}

/// The part of a place that the process's stage has: [from, to) of its width.
function ofStage(place, process) {
  if (!place.units?.[0]?.stages) return !place.stages || place.stages.includes(process.stage) ? [0, 1] : null;
  const before = (end) => place.units.slice(0, end).reduce((sum, unit) => sum + unit.elements, 0) / Math.max(1, place.elements);
  const own = place.units.map((unit, i) => (unit.stages.includes(process.stage) ? i : -1)).filter((i) => i >= 0 && place.units[i].stages.length === 1);
  return own.length ? [before(own[0]), before(own.at(-1) + 1)] : null;
}

function cell(t, place, process, y) {
  const about = `${place.name ? `${place.name}, ${whole(place.elements)} ${t.elements}` : t.allUnits}`;
  return kStates.map(([category, short], i) => {
    const state = process.states[category];
    const top = y + i * (kBar + kGap);
    const bar = (x, width, fill, text) =>
      s("rect", { x, y: top, width, height: kBar, fill, stroke: fill === "none" ? "var(--line)" : null, "stroke-width": 0.7 }, s("title", {}, `${short} · ${about}: ${text}`));
    const stage = ofStage(place, process);
    if (stage === null) return bar(place.x, place.width, "none", t.otherStage);
    const at = (share) => place.x + (stage[0] + share * (stage[1] - stage[0])) * place.width;
    const wide = (share) => share * (stage[1] - stage[0]) * place.width;
    const [sliceX, sliceWidth] = [at(process.slice), wide(process.sliceShare)];
    const faint = (x, width, text) =>
      s("rect", { x, y: top, width, height: kBar, fill: `var(--${category})`, "fill-opacity": "var(--faint)" }, s("title", {}, `${short} · ${about}: ${text}`));
    const brief = process.role === "server" && category === "gradients" && state === "range";  // a server aggregates them, and forgets
    return [bar(place.x, place.width, "none", t.nothingKept),
      brief ? faint(at(process.begin), Math.max(1, wide(process.share)), `${t.passingRange} ${process.of}`)
        : state.includes("passing") ? faint(sliceX, sliceWidth, t.passing) : null,
      state === "whole" ? bar(sliceX, sliceWidth, `var(--${category})`, t.kept) : null,
      state.startsWith("range") && !brief ? bar(at(process.begin), Math.max(1, wide(process.share)), `var(--${category})`, `${t.kept} ${process.of}`) : null];
  });
}

function panel(ctx, row, x0, y0, width) {
  const { t } = ctx;
  const own = row.ownership;
  const place = (process) => (own.mesh ? t.meshPlace(process, own.mesh) : "");
  const left = 8 + Math.max(widthOf(`${t.worker} 0`), own.server ? widthOf(`${t.server} 0`) : 0) + (own.mesh ? widthOf(place({ copy: 0, stage: 0, tensor: 0 })) : 0);
  const units = places(own.units ?? [], x0 + left, width - left);
  const nodes = [label(x0, y0 + 13, cut(row.label, width), { fill: "var(--text)", "font-weight": 600, "font-size": 13 })];
  let y = y0 + 22;
  if (units.length > 1) {
    nodes.push(units.map((unit) => widthOf(unit.name) < unit.width + 2 ? label(unit.x + unit.width / 2, y + 10, unit.name, { "text-anchor": "middle", "font-size": 11 }) : null));
    y += 16;
  }
  for (const process of processes(own)) {
    if (process.more) {
      nodes.push(label(x0 + left, y + 12, t.more(process.more)));
      y += kRow;
      continue;
    }
    nodes.push(label(x0 + left - 8, y + 13, `${t[process.role]} ${process.rank}${place(process)}`, { "text-anchor": "end" }), units.map((unit) => cell(t, unit, process, y)));
    y += kRow;
  }
  return { nodes, height: y - y0 + 12 };
}

function diagram(ctx, rows, width) {
  return panels(rows, width, 380, (row, x, y, each) => panel(ctx, row, x, y, each));
}

const keys = (t) => h("div", { class: "keys" }, kStates.map(([category, short]) => h("span", {}, swatch(`var(--${category})`), `${short} ${t.categories[category]}`)),
  h("span", {}, h("span", { class: "swatch faint" }), t.faint));

export function owners(ctx) {
  const { t } = ctx;
  const drawn = ctx.rows.filter((row) => row.ownership);
  const unknown = ctx.rows.filter((row) => !row.ownership);
  const moving = flows(ctx);
  if (drawn.length === 0 && !moving) return null;
  const data = () => [["strategy", "process", "unit", "elements", ...kStates.map(([name]) => name), "part", "parts", "copy", "stage", "tensor_rank"],
    ...drawn.flatMap((row) => processes(row.ownership).filter((one) => !one.more).flatMap((one) =>
      (row.ownership.units ?? [{ name: null, elements: null }]).map((unit) =>
        [row.label, `${one.role} ${one.rank}`, unit.name, unit.elements, ...kStates.map(([name]) => one.states[name]), one.part, one.parts, one.copy, one.stage, one.tensor])))];
  return section("owners", t.ownersTitle,
    drawn.length ? [keys(t), figure({ id: "owned-ranges", title: t.ownTitle, caption: t.ownCaption, texts: t, data, draw: (width) => diagram(ctx, drawn, width) })] : null,
    drawn.some((row) => row.ownership.mesh) ? h("p", { class: "quiet" }, t.meshNote) : null,
    unknown.length ? h("p", { class: "quiet" }, t.noOwnership(unknown.map((row) => row.label).join(t.listSep))) : null,
    moving);
}
