// Who sends what to whom: arrows between processes, as wide as the bytes of a step.

import { cut, label, panels } from "../common/charts.js";
import { s } from "../common/dom.js";
import { figure } from "../common/figure.js";
import { bytes } from "../common/format.js";
import { operationName, processName } from "../common/names.js";

const kMostProcesses = 12;

/// Operations that move tensors in a step; start-up, verdicts and evaluation are control.
const kExchange = new Set(["push", "pull", "push_pull", "values", "all_reduce", "reduce_scatter", "all_gather", "message", "rows_pull", "rows", "rows_push"]);

const role = (name) => name.split(" ")[0];

/// Returns [{from, to, payload, operations}] with one line for each pair of processes.
function pairs(row) {
  const found = new Map();
  for (const [from, to, operation, payload] of row.run.traffic) {
    if (!kExchange.has(operation) || payload === 0) continue;
    const key = `${from}\n${to}`;
    const pair = found.get(key) ?? { from, to, payload: 0, operations: new Map() };
    pair.payload += payload;
    pair.operations.set(operation, (pair.operations.get(operation) ?? 0) + payload);
    found.set(key, pair);
  }
  return [...found.values()];
}

/// Messages are samples, but between the stages of a pipeline.
const nameOf = (t, row, operation) => (operation === "message" && row.ownership?.mesh ? t.categories.activations : operationName(t, operation));

/// Returns lines such as "worker → server: push 1.2 MiB", with the bytes of all pairs of these roles in a step.
function sums(t, row, list, steps) {
  const found = new Map();
  for (const pair of list)
    for (const [operation, payload] of pair.operations) {
      const key = `${t[role(pair.from)] ?? role(pair.from)} → ${t[role(pair.to)] ?? role(pair.to)}${t.colon}${nameOf(t, row, operation)}`;
      found.set(key, (found.get(key) ?? 0) + payload);
    }
  return [...found].map(([text, payload]) => `${text} ${bytes(Math.round(payload / steps))}`);
}

const names = (list) => [...new Set(list.flatMap((pair) => [pair.from, pair.to]))]
  .sort((a, b) => role(b).localeCompare(role(a)) || a.localeCompare(b, "en", { numeric: true }));

/// Workers above servers; without servers, all on a circle.
function positions(list, x0, y0, width, height) {
  const servers = list.filter((name) => role(name) === "server");
  const others = list.filter((name) => role(name) !== "server");
  const place = new Map();
  const spread = (line, y) => line.forEach((name, i) => place.set(name, [x0 + ((i + 0.5) * width) / line.length, y]));
  if (servers.length > 0) {
    spread(others, y0 + 20);
    spread(servers, y0 + height - 20);
    return place;
  }
  const [rx, ry] = [Math.min(width / 2 - 30, height), height / 2 - 20];
  others.forEach((name, i) => {
    const angle = (2 * Math.PI * (i + 0.5)) / others.length - Math.PI / 2;
    place.set(name, [x0 + width / 2 + rx * Math.cos(angle - Math.PI / others.length), y0 + height / 2 + ry * Math.sin(angle - Math.PI / others.length)]);
  });
  return place;
}

function arrow([x1, y1], [x2, y2], wide, text) {
  const length = Math.hypot(x2 - x1, y2 - y1) || 1;
  const [dx, dy] = [(x2 - x1) / length, (y2 - y1) / length];
  const start = 17;
  const side = 4;  // both directions stand beside each other
  const [ax, ay] = [x1 + dx * start - dy * side, y1 + dy * start + dx * side];
  const [bx, by] = [x2 - dx * (start + 5) - dy * side, y2 - dy * (start + 5) + dx * side];
  const tip = `M${bx + dx * 6},${by + dy * 6}L${bx - dy * 4},${by + dx * 4}L${bx + dy * 4},${by - dx * 4}z`;
  return s("g", { stroke: "var(--compute)", fill: "var(--compute)" },
    s("path", { d: `M${ax},${ay}L${bx},${by}`, "stroke-width": wide.toFixed(1), "stroke-opacity": 0.75, fill: "none" }, s("title", {}, text)),
    s("path", { d: tip, stroke: "none" }, s("title", {}, text)));
}

function panel(ctx, row, x0, y0, width) {
  const { t } = ctx;
  const list = pairs(row);
  const steps = row.run.summary.steps;
  const all = names(list);
  const height = all.some((name) => role(name) === "server") ? 150 : all.length > 2 ? 170 : 100;
  const place = positions(all, x0, y0 + 18, width, height);
  const most = Math.max(...list.map((pair) => pair.payload));
  const said = sums(t, row, list, steps);
  return {
    nodes: [label(x0, y0 + 13, cut(row.label, width), { fill: "var(--text)", "font-weight": 600, "font-size": 13 }),
      list.map((pair) => arrow(place.get(pair.from), place.get(pair.to), 1 + 3 * (pair.payload / most),
        `${processName(t, pair.from)} → ${processName(t, pair.to)}${t.colon}${[...pair.operations].map(([name, payload]) => `${nameOf(t, row, name)} ${bytes(Math.round(payload / steps))}`).join(", ")} ${t.aStep}`)),
      all.map((name) => {
        const [x, y] = place.get(name);
        const server = role(name) === "server";
        return s("g", {}, s(server ? "rect" : "circle", server ? { x: x - 13, y: y - 13, width: 26, height: 26, rx: 4, fill: "var(--raised)", stroke: "var(--quiet)" } : { cx: x, cy: y, r: 14, fill: "var(--raised)", stroke: "var(--quiet)" }),
          label(x, y + 4, (server ? "s" : "w") + name.split(" ")[1], { "text-anchor": "middle", fill: "var(--text)" }), s("title", {}, processName(t, name)));
      }),
      said.map((text, i) => label(x0, y0 + 18 + height + 14 + i * 16, cut(text, width)))],
    height: 18 + height + 14 + said.length * 16 + 14,
  };
}

function captionOf(t, rows) {
  return [t.flowsCaption, rows.some((row) => row.run.recoveries.length > 0) ? t.flowsLost : ""].filter(Boolean).join(" ");
}

export function flows(ctx) {
  const { t } = ctx;
  const rows = ctx.rows.filter((row) => row.run.traffic && row.run.summary?.steps && pairs(row).length > 0 && names(pairs(row)).length <= kMostProcesses);
  if (rows.length === 0) return null;
  return figure({
    id: "flows", title: t.flowsTitle, caption: captionOf(t, rows), texts: t,
    draw: (width) => panels(rows, width, 300, (row, x, y, each) => panel(ctx, row, x, y, each)),
    data: () => [["strategy", "from", "to", "operation", "payload", "steps"],
      ...rows.flatMap((row) => row.run.traffic.filter(([, , operation]) => kExchange.has(operation)).map(([from, to, operation, payload]) => [row.label, from, to, operation, payload, row.run.summary.steps]))],
  });
}
