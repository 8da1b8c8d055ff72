// The context of all sections: the document, the texts, the point whose rows are shown, and the curves.

import { hash } from "../common/preferences.js";
import { en } from "./texts_en.js";
import { zh } from "./texts_zh.js";

const kDashes = ["", "7 3", "2 3", "9 3 2 3"];
/// The curves that a page begins with, in this order: each is the end of a lesson.
const kMain = [/^ddp$/, /^ps s=1$/, /^ps( s=hosts)?$/, /^ps-colocated( s=\w+)?$/, /^zero1$/, /^zero3$/, /^zero3 group=host$/, /^ps s=mixed/];
const kMost = 8;

/// Returns the curves of the sweep: {name, points: [[index of the point, index of the row]], colour, dash}.
export function curvesOf(doc) {
  const curves = new Map();
  (doc.points ?? []).forEach((point, p) => point.rows.forEach((row, r) => row.series.forEach((name) => {
    if (!curves.has(name)) curves.set(name, []);
    if (curves.get(name).at(-1)?.[0] !== p) curves.get(name).push([p, r]);
  })));
  const names = [...curves.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const main = kMain.flatMap((pattern) => names.filter((name) => pattern.test(name))).slice(0, kMost);
  const order = [...main, ...names.filter((name) => !main.includes(name))];
  return order.map((name, i) => ({ name, points: curves.get(name), main: main.length ? i < main.length : i < kMost, colour: `var(--s${i % 8})`, dash: kDashes[Math.floor(i / 8) % 4] || null }));
}

/// The points whose rows can be shown: the plan itself, and the points of the sweep.
function pointsOf(doc) {
  const list = doc.rows ? [{ path: "", point: doc, value: null }] : [];
  return [...list, ...(doc.points ?? []).map((point, i) => ({ path: `points.${i}.`, point, value: point.value }))];
}

export function makeState(doc) {
  const points = pointsOf(doc);
  const curves = curvesOf(doc);
  const wanted = points.findIndex((one) => one.value !== null && one.value === hash.get("at"));
  return { points, curves, at: Math.max(0, wanted), row: 0, more: false, allRows: false, shown: new Set(curves.filter((one) => one.main).map((one) => one.name)) };
}

export function makeContext(doc, state, language, change) {
  const { path, point, value } = state.points[state.at];
  return { doc, state, t: { en, zh }[language], language, change, path, point, value, rows: point.rows,
           rate: "tokens_per_s" in point.rows[0] ? "tokens_per_s" : "samples_per_s" };
}

/// Groups of bars, one bar for each row. On a narrow drawing each name has a line of its own.
export const barGroups = (bars, width) => (width < 560 ? bars.map(({ name, ...bar }) => ({ name, bars: [bar] })) : [{ bars }]);

/// A rate in bit/s, and a time, as people write them.
export function rateText(bits) {
  const [scale, unit] = bits >= 1e9 ? [1e9, "Gbit/s"] : bits >= 1e6 ? [1e6, "Mbit/s"] : [1e3, "kbit/s"];
  return `${Number((bits / scale).toPrecision(4))} ${unit}`;
}
export function delayText(seconds) {
  if (!seconds) return "";
  return seconds >= 1e-3 ? `${Number((seconds * 1e3).toPrecision(4))} ms` : `${Number((seconds * 1e6).toPrecision(4))} µs`;
}
