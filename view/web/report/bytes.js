// Bytes: measured against predicted, and who sent how much to whom.

import { bars, cut, label, svg, widthOf } from "../common/charts.js";
import { h, s, table } from "../common/dom.js";
import { figure } from "../common/figure.js";
import { bytes as text, byteTicks, kNothing, whole } from "../common/format.js";
import { operationName, processName } from "../common/names.js";
import { section } from "../common/parts.js";
import { choice, number } from "./context.js";

const ticks = (least, most, count) => byteTicks(most, count);

/// Of all workers the one that moves most, and the servers.
function largest(checks) {
  const kept = new Map();
  for (const check of checks) {
    const key = `${check.role.startsWith("worker") ? "worker" : check.role} ${check.direction}`;
    if (!kept.has(key) || kept.get(key).measured < check.measured) kept.set(key, check);
  }
  return [...kept.values()];
}

function difference(ctx, check) {
  const { t } = ctx;
  if (check.predicted == null) return h("td", { class: "n" }, kNothing);
  const by = check.measured - check.predicted;
  return h("td", { class: `n ${by === 0 ? "good" : "bad"}`, title: by === 0 ? t.asPredicted : t.differs }, `${whole(by)} ${by === 0 ? "✓" : "✗"}`);
}

function totals(traffic) {
  const sums = new Map();
  for (const [from, to, , payload] of traffic) sums.set(`${from}\n${to}`, (sums.get(`${from}\n${to}`) ?? 0) + payload);
  return sums;
}

function matrix(ctx, row, width) {
  const { t } = ctx;
  const sums = totals(row.run.traffic);
  const names = [...new Set(row.run.traffic.flatMap(([from, to]) => [from, to]))].sort((a, b) => b.localeCompare(a, "en", { numeric: true }) * (a[0] === b[0] ? -1 : 1));
  const brief = (name) => processName(t, name);
  const left = Math.min(width * 0.32, 10 + Math.max(...names.map((name) => widthOf(brief(name)))));
  const cell = Math.min(96, (width - left) / names.length);
  const tall = 30;
  const most = Math.max(1, ...sums.values());
  const narrow = cell < 62;
  const head = narrow ? 28 : 20;
  const number = (name) => brief(name).replace(/^(.).* (\d+)$/u, (_, first, rank) => first.toLowerCase() + rank);
  return svg(width, head + names.length * tall + 4,
    names.map((name, i) => label(left + (i + 0.5) * cell, 14, narrow ? number(name) : cut(brief(name), cell), { "text-anchor": "middle" })),
    names.map((from, r) => [
      label(left - 8, head + r * tall + 19, cut(brief(from), left - 8), { "text-anchor": "end" }),
      names.map((to, c) => {
        const sum = sums.get(`${from}\n${to}`);
        const share = sum ? 0.08 + 0.42 * (sum / most) : 0;
        return [
          s("rect", { x: left + c * cell + 1, y: head + r * tall + 1, width: cell - 2, height: tall - 2, fill: sum ? "var(--compute)" : "var(--raised)", "fill-opacity": sum ? share : 1 },
            s("title", {}, `${brief(from)} → ${brief(to)}: ${sum ? text(sum) : kNothing}`)),
          sum && !narrow ? label(left + (c + 0.5) * cell, head + r * tall + 19, text(sum), { "text-anchor": "middle", "font-size": 11, fill: "var(--text)" }) : null];
      })]));
}

/// The text of a formula with its numbers in place of the names.
const withNumbers = ({ text: formula, values }) => formula.replace(/Mg|Mp|\bn\b|\bA\b/g, (name) => whole(values[name]));

/// One line for each formula of a row: workers whose formulas and numbers are equal share a line.
function formulaLines(ctx, row) {
  const { t } = ctx;
  const seen = new Set();
  return row.run.formulas.flatMap((formula, i) => {
    const check = row.run.summary.bytes[i];
    if (!formula || formula.a_step === 0) return [];
    const group = check.role.startsWith("worker") ? t.aWorker : processName(t, check.role);
    const key = [group, check.direction, formula.text, formula.steps, check.measured].join("\n");
    if (seen.has(key)) return [];
    seen.add(key);
    const own = `rows.${row.index}.runs.0.`;
    return [[row.label, `${group} ${t[check.direction] ?? check.direction}`, formula.text, withNumbers(formula),
      number(ctx, `${own}formulas.${i}.a_step`, whole), number(ctx, `${own}formulas.${i}.steps`, whole),
      number(ctx, `${own}summary.bytes.${i}.predicted`, whole), number(ctx, `${own}summary.bytes.${i}.measured`, whole), difference(ctx, check)]];
  });
}

function formulas(ctx, rows) {
  const { t } = ctx;
  const lines = rows.filter((row) => row.run.formulas).flatMap((row) => formulaLines(ctx, row));
  if (lines.length === 0) return null;
  return [h("h3", {}, t.formulasTitle), table([{ title: t.strategy }, { title: t.process }, { title: t.formula }, { title: t.withNumbers },
    ...[t.bytesAStep, t.steps, t.predicted, t.measured, t.difference].map((title) => ({ title, number: true }))], lines),
    h("p", { class: "quiet" }, t.formulasNote)];
}

export function bytes(ctx) {
  const { t } = ctx;
  const rows = ctx.rows.filter((row) => row.run.summary?.bytes?.length);
  if (rows.length === 0) return null;
  const { node, row } = choice(ctx, "bytes", true, rows);
  const of = (one) => (row ? one.run.summary.bytes : largest(one.run.summary.bytes));
  const named = (check) => `${processName(t, check.role)} ${t[check.direction] ?? check.direction}`;
  const group = (one) => ({
    name: one.label,
    bars: of(one).map((check) => ({
      name: named(check), parts: [{ value: check.measured, colour: check.direction === "received" ? "var(--gradients)" : "var(--compute)", title: `${named(check)}: ${whole(check.measured)}` }],
      mark: check.predicted, markTitle: `${t.predicted} ${whole(check.predicted)}`,
      text: `${text(check.measured)}${check.predicted == null ? "" : check.predicted === check.measured ? " ✓" : " ✗"}`,
    })),
  });
  const columns = [{ title: t.strategy }, { title: t.process }, { title: t.direction }, { title: t.measured, number: true }, { title: t.predicted, number: true }, { title: t.difference, number: true }];
  const body = (row ? [row] : rows).flatMap((one) => one.run.summary.bytes.map((check, i) => {
    const own = `rows.${one.index}.runs.0.summary.bytes.${i}.`;
    return [one.label, processName(t, check.role), t[check.direction] ?? check.direction, number(ctx, own + "measured", whole), number(ctx, own + "predicted", whole), difference(ctx, check)];
  }));
  const talking = ctx.rows.filter((one) => one.run.traffic?.length);
  const traffic = choice(ctx, "traffic", false, talking);
  const picked = talking.includes(traffic.row) ? traffic.row : talking[0];
  return section("bytes", t.bytesTitle, node,
    figure({
      id: "bytes-moved", title: t.bytesFigure, caption: t.bytesCaption, texts: t,
      draw: (width) => bars({ width, groups: (row ? [row] : rows).map(group), text, axisTicks: ticks }),
      data: () => [["strategy", "process", "direction", "measured", "predicted", "difference"],
        ...(row ? [row] : rows).flatMap((one) => one.run.summary.bytes.map((check) =>
          [one.label, check.role, check.direction, check.measured, check.predicted, check.predicted == null ? null : check.measured - check.predicted]))],
    }),
    h("details", {}, h("summary", {}, t.table), table(columns, body)),
    formulas(ctx, row ? [row] : rows),
    picked ? [h("h3", {}, t.traffic), traffic.node, figure({
      id: "traffic", title: t.traffic + t.colon + picked.label, caption: t.trafficCaption, texts: t,
      draw: (width) => matrix(ctx, picked, width),
      data: () => [["from", "to", "operation", "payload", "framing"], ...picked.run.traffic],
    }), h("details", {}, h("summary", {}, t.table), table(
      [{ title: t.from }, { title: t.to }, { title: t.operation }, { title: t.payload, number: true }, { title: t.framing, number: true }],
      picked.run.traffic.map((line, i) => [processName(t, line[0]), processName(t, line[1]), operationName(t, line[2]),
        ...[3, 4].map((at) => number(ctx, `rows.${picked.index}.runs.0.traffic.${i}.${at}`, whole))])))] : null);
}
