// The timeline of one step: processes as rows, computing and communication as bars, arrows between them.

import { cut, label, svg, widthOf } from "../common/charts.js";
import { h, s } from "../common/dom.js";
import { figure } from "../common/figure.js";
import { bytes, fixed, milliseconds, ticks, whole } from "../common/format.js";
import { processName } from "../common/names.js";
import { keys, section } from "../common/parts.js";
import { choice } from "./context.js";

const [kLane, kGap, kMostLanes] = [15, 3, 4];
const kZooms = [1, 2, 4, 8, 16];

const kColours = { forward: "var(--s0)", backward: "var(--s4)", update: "var(--s2)", serve: "var(--s7)", device: "var(--s6)", wait: "var(--exposed)" };

/// Puts intervals that overlap into lanes below each other; the last lane takes all that are left.
function lanesOf(list) {
  const ends = [];
  return list.map((one) => {
    let lane = ends.findIndex((end) => end <= one.begin);
    if (lane < 0) lane = Math.min(ends.length, kMostLanes - 1);
    ends[lane] = Math.max(ends[lane] ?? 0, one.begin + one.duration);
    return { ...one, lane };
  });
}

/// Returns {process, slices, transfers, lanes} with one item for each process, workers first.
function processes(trace) {
  const found = new Map();
  const own = (process) => found.get(process) ?? found.set(process, { process, slices: [], transfers: [] }).get(process);
  for (const [process, kind, text, begin, duration] of trace.slices) own(process).slices.push({ kind, text, begin, duration });
  for (const [process, text, begin, duration, size] of trace.transfers) own(process).transfers.push({ text, begin, duration, size });
  for (const one of found.values()) {
    one.slices.sort((a, b) => (a.kind === "wait") - (b.kind === "wait"));
    one.transfers = lanesOf(one.transfers.sort((a, b) => a.begin - b.begin));
    one.lanes = Math.max(0, ...one.transfers.map((transfer) => transfer.lane + 1));
  }
  return [...found.values()].sort((a, b) => b.process.localeCompare(a.process, "en", { numeric: true }) * (a.process[0] === b.process[0] ? -1 : 1));
}

function bar(x, y, begin, duration, fill, text) {
  const width = Math.max(0.7, x(begin + duration) - x(begin));
  return [s("rect", { x: x(begin).toFixed(1), y, width: width.toFixed(1), height: kLane, fill }, s("title", {}, text))];
}

function arrows(trace, x, middle) {
  return trace.arrows.map(([operation, from, left, to, arrived]) => {
    if (!middle.has(from) || !middle.has(to)) return null;
    const [x1, y1, x2, y2] = [x(left), middle.get(from), x(arrived), middle.get(to)];
    return s("path", { d: `M${x1.toFixed(1)},${y1}L${x2.toFixed(1)},${y2}`, stroke: "var(--text)", "stroke-opacity": 0.35, "stroke-width": 1, "marker-end": "url(#tip)" },
      s("title", {}, `${operation}: ${from} → ${to}, ${milliseconds(left)} – ${milliseconds(arrived)} ms`));
  });
}

function drawing(ctx, trace, width) {
  const { t } = ctx;
  const list = processes(trace);
  const left = 10 + Math.max(...list.map((one) => widthOf(processName(t, one.process))));
  const right = 12;
  const x = (v) => left + (Math.min(Math.max(v, 0), trace.duration_s) / trace.duration_s) * (width - left - right);
  const middle = new Map();
  const nodes = [];
  let y = 6;
  for (const one of list) {
    const tall = (1 + one.lanes) * (kLane + kGap);
    middle.set(one.process, y + kLane / 2);
    nodes.push(label(left - 8, y + 12, processName(t, one.process), { "text-anchor": "end" }), s("line", { x1: 0, x2: width, y1: y + tall + 3, y2: y + tall + 3, stroke: "var(--line)" }));
    for (const slice of one.slices) {
      const about = `${t.kinds[slice.kind]} ${slice.text}, ${milliseconds(slice.duration)} ms`;
      nodes.push(bar(x, y, slice.begin, slice.duration, kColours[slice.kind], about));
      const room = x(slice.begin + slice.duration) - x(slice.begin);
      if (slice.kind !== "wait" && slice.kind !== "serve" && room > 34) nodes.push(label(x(slice.begin) + 3, y + 11.5, cut(slice.text, room - 4), { fill: "var(--back)", "font-size": 11, "pointer-events": "none" }));
    }
    for (const transfer of one.transfers)
      nodes.push(bar(x, y + (1 + transfer.lane) * (kLane + kGap), transfer.begin, transfer.duration, "var(--communication)", `${transfer.text}${transfer.size ? `, ${bytes(transfer.size)}` : ""}, ${milliseconds(transfer.duration)} ms`));
    y += tall + 8;
  }
  const marks = ticks(0, trace.duration_s * 1000, Math.max(2, Math.floor(width / 100)));
  const axisText = (v) => `${v}${v === marks.at(-1) ? ` ${t.ms}` : ""}`;
  return svg(width, y + 22,
    s("defs", {}, s("marker", { id: "tip", viewBox: "0 0 6 6", refX: 6, refY: 3, markerWidth: 6, markerHeight: 6, orient: "auto" }, s("path", { d: "M0,0L6,3L0,6z", fill: "var(--text)", "fill-opacity": 0.6 }))),
    marks.map((v) => [s("line", { x1: x(v / 1000), x2: x(v / 1000), y1: 0, y2: y, stroke: "var(--line)" }), label(...(x(v / 1000) > width - 26 ? [width, y + 15, axisText(v), { "text-anchor": "end" }] : [x(v / 1000), y + 15, axisText(v), { "text-anchor": "middle" }]))]),
    nodes, arrows(trace, x, middle));
}

function zoom(ctx) {
  const { t } = ctx;
  const picked = ctx.picks.zoom ?? "1";
  return h("div", { class: "choose" }, h("label", { for: "choose-zoom" }, t.zoom + t.colon.trim()),
    h("select", { id: "choose-zoom", onchange: (event) => ctx.again("zoom", event.target.value) },
      kZooms.map((value) => h("option", { value, selected: picked === String(value) }, `${value} ×`))));
}

export function timeline(ctx) {
  const { t } = ctx;
  const rows = ctx.rows.filter((row) => row.run.trace);
  if (rows.length === 0) return null;
  const { node, row: chosen } = choice(ctx, "timeline", false, rows);
  const row = rows.includes(chosen) ? chosen : rows[0];
  const { trace } = row.run;
  const scale = Number(ctx.picks.zoom ?? 1);
  return section("timeline", t.timelineTitle, h("div", { class: "row" }, node, zoom(ctx)),
    keys(Object.entries(kColours).filter(([kind]) => trace.slices.some((slice) => slice[1] === kind)).map(([kind, colour]) => [colour, t.kinds[kind]]).concat([["var(--communication)", t.inFlight]])),
    figure({
      id: "timeline-step", title: t.timelineFigure(row.label, whole(trace.step), fixed(trace.duration_s * 1000, 2)),
      caption: [t.timelineCaption, trace.left_out ? t.leftOut(trace.left_out) : ""].join(" "), texts: t, wide: scale > 1,
      draw: (width) => drawing(ctx, trace, width * scale),
      data: () => [["what", "process", "to", "kind", "text", "begin_s", "duration_s", "bytes"],
        ...trace.slices.map(([process, kind, text, begin, duration]) => ["slice", process, null, kind, text, begin, duration, null]),
        ...trace.transfers.map(([process, text, begin, duration, size]) => ["transfer", process, null, null, text, begin, duration, size]),
        ...trace.arrows.map(([operation, from, left, to, arrived]) => ["frame", from, to, operation, null, left, Number((arrived - left).toFixed(6)), null])],
    }));
}
