// The traffic between processes: a matrix of rates, and the busiest links as a list.

import { cut, label, svg, widthOf } from "../common/charts.js";
import { h, s } from "../common/dom.js";
import { figure } from "../common/figure.js";
import { bytes, kNothing, whole } from "../common/format.js";
import { processName } from "../common/names.js";
import { section } from "../common/parts.js";
import { growingTable } from "./rows.js";

const kMostListed = 20;
const kLeastCell = 15;  ///< pixels; a matrix is wider than the page if its cells would be smaller
const kNamedCell = 62;  ///< pixels that the number of a cell needs

const perSecond = (value) => (value == null ? kNothing : `${bytes(value)}/s`);
const byPlace = (a, b) => {
  const [roleA, rankA] = a.split(" ");
  const [roleB, rankB] = b.split(" ");
  return roleB.localeCompare(roleA) || Number(rankA) - Number(rankB);  // workers before servers
};

/// Returns {names, rates}: the sum of a pair's operations; `rates` by "from\nto".
function pairsOf(links) {
  const names = [...new Set(links.flatMap((link) => [link.from, link.to]))].sort(byPlace);
  const rates = new Map();
  for (const link of links) rates.set(`${link.from}\n${link.to}`, (rates.get(`${link.from}\n${link.to}`) ?? 0) + (link.bytes_per_second ?? 0));
  return { names, rates };
}

function matrix(t, links, width) {
  const { names, rates } = pairsOf(links);
  const most = Math.max(1, ...rates.values());
  const left = Math.min(width * 0.3, Math.max(...names.map((name) => widthOf(processName(t, name))))) + 8;
  const cell = Math.max(kLeastCell, Math.min(84, (width - left) / names.length));
  const high = Math.min(30, cell);
  const top = 34;
  const every = Math.ceil(22 / cell);
  const short = (name) => (cell >= 64 ? processName(t, name) : `${name[0]}${name.split(" ")[1] ?? ""}`);
  return svg(Math.max(width, left + cell * names.length), top + high * names.length + 4,
    label(left, 12, `${t.to} →`),
    s("path", { d: Array.from({ length: names.length + 1 }, (_, i) => `M${left + i * cell - 0.5},${top}V${top + high * names.length}M${left},${top + i * high - 0.5}H${left + cell * names.length}`).join(""), stroke: "var(--line)", "stroke-width": 0.5, fill: "none" }),
    names.map((name, i) => i % every ? null : label(left + (i + 0.5) * cell, top - 6, cut(short(name), cell * every), { "text-anchor": "middle", "font-size": 11 })),
    names.map((from, row) => [
      high * every >= 14 || row % every === 0 ? label(left - 6, top + (row + 0.5) * high + 4, cut(processName(t, from), left - 6), { "text-anchor": "end" }) : null,
      names.map((to, at) => {
        const rate = rates.get(`${from}\n${to}`);
        if (rate === undefined) return null;
        return [
          s("rect", { x: left + at * cell, y: top + row * high, width: cell - 1, height: high - 1, fill: "var(--compute)", "fill-opacity": (0.08 + 0.5 * (rate / most)).toFixed(2) },
            s("title", {}, `${processName(t, from)} → ${processName(t, to)}: ${perSecond(rate)}`)),
          cell >= kNamedCell ? label(left + (at + 0.5) * cell, top + (row + 0.5) * high + 4, bytes(rate), { "text-anchor": "middle", fill: "var(--text)", "font-size": 11 }) : null];
      })]));
}

export function links(ctx) {
  const { t } = ctx;
  const drawn = figure({ id: "links", title: t.linksFigure, texts: t, wide: true, caption: t.linksCaption,
    draw: (width) => matrix(t, ctx.snapshot.links, width),
    data: () => [["from", "to", "operation", "bytes", "bytes_per_second", "retransmissions"],
      ...ctx.snapshot.links.map((link) => [link.from, link.to, link.operation, link.bytes, link.bytes_per_second, link.retransmissions])] });
  const table = growingTable({ label: t.busiest(kMostListed), classes: "live", columns: [
    { name: "from", title: t.from, text: (link) => processName(t, link.from) },
    { name: "to", title: t.to, text: (link) => processName(t, link.to) },
    { name: "operation", title: t.operation, text: (link) => link.operation },
    { name: "rate", title: t.rate, number: true, text: (link) => perSecond(link.bytes_per_second) },
    { name: "bytes", title: t.payload, number: true, text: (link) => bytes(link.bytes) },
    { name: "retransmissions", title: t.retransmissions, number: true, text: (link) => whole(link.retransmissions) },
  ] });
  const again = h("p", { id: "retransmissions" });
  const node = section("links", t.linksTitle, drawn, again, h("details", {}, h("summary", {}, t.busiest(kMostListed)), table.node));
  const update = (snapshot) => {
    drawn.redraw();
    const resent = snapshot.links.reduce((sum, link) => sum + (link.retransmissions ?? 0), 0);
    const text = snapshot.links.some((link) => link.retransmissions != null) ? t.resent(whole(resent)) : t.notResent;
    if (again.textContent !== text) again.textContent = text;
    const order = [...snapshot.links].sort((a, b) => (b.retransmissions ?? 0) - (a.retransmissions ?? 0) || (b.bytes_per_second ?? 0) - (a.bytes_per_second ?? 0) || b.bytes - a.bytes);
    table.update(order.slice(0, kMostListed), (link) => `${link.from}\n${link.to}\n${link.operation}`);
  };
  return { id: "links", node, has: (snapshot) => snapshot.links.length > 0, update };
}
