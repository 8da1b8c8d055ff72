// Who waits for whom in a step, from the traces of the runs.

import { bars } from "../common/charts.js";
import { h, table } from "../common/dom.js";
import { figure } from "../common/figure.js";
import { milliseconds, short } from "../common/format.js";
import { processName } from "../common/names.js";
import { keys } from "../common/parts.js";
import { number } from "./context.js";

const kMostBars = 40;
const kLeast = 0.002;  // share of the longest wait; shorter ones are not drawn

/// Lines of a row as {process, peer, seconds, at}. A server that updates with each gradient waits for nobody. A worker's
/// wait that names no process is for parameters, which servers send if the job has any.
function linesOf(row) {
  const { job } = row.run.manifest;
  return row.run.trace.waits.map(([process, peer, seconds], at) => ({ process, peer: peer || (job.servers > 0 ? "servers" : ""), seconds, at }))
    .filter(({ process, peer }) => process !== peer && (process.startsWith("worker") || job.consistency === "bsp"));
}

/// {process, lines} by process, workers first; the one that waits longest if `few`.
function processes(row, few) {
  const found = new Map();
  for (const line of linesOf(row)) found.set(line.process, [...(found.get(line.process) ?? []), line]);
  const list = [...found].map(([process, lines]) => ({ process, lines, sum: lines.reduce((sum, line) => sum + line.seconds, 0) }))
    .sort((a, b) => (a.process[0] === b.process[0] ? a.process.localeCompare(b.process, "en", { numeric: true }) : a.process < b.process ? 1 : -1));
  return few ? [list.reduce((a, b) => (b.sum > a.sum ? b : a))] : list;
}

const colourOf = (peer) => (peer === "" ? "var(--staging)" : peer === "servers" ? "var(--compute)" : `var(--s${Number(peer.split(" ")[1]) % 8})`);

export function waits(ctx, rows) {
  const { t } = ctx;
  const traced = rows.filter((row) => row.run.trace?.waits && linesOf(row).length > 0);
  if (traced.length === 0) return null;
  const few = traced.reduce((sum, row) => sum + processes(row, false).length, 0) > kMostBars;
  const longest = Math.max(...traced.flatMap((row) => processes(row, few).map((one) => one.sum)));
  const name = (peer) => ({ "": t.waitsUnknown, servers: t.waitsServers }[peer] ?? processName(t, peer));
  const isSeen = (line) => line.seconds >= kLeast * longest;
  const group = (row) => ({
    name: row.label,
    bars: processes(row, few).map(({ process, lines, sum }) => ({
      name: processName(t, process), text: `${milliseconds(sum)} ms`,
      parts: lines.filter(isSeen).map((line) => ({ value: line.seconds, colour: colourOf(line.peer), title: `${t.waitsFor(name(line.peer))} ${milliseconds(line.seconds)} ms` })),
    })),
  });
  const peers = [...new Set(traced.flatMap((row) => processes(row, few).flatMap((one) => one.lines.filter(isSeen).map((line) => line.peer))))]
    .sort((a, b) => (a === "" ? 1 : b === "" ? -1 : a.localeCompare(b, "en", { numeric: true })));
  return [h("h3", {}, t.waitsTitle), keys(peers.map((peer) => [colourOf(peer), name(peer)])),
    figure({
      id: "waits", title: t.waitsFigure, caption: t.waitsCaption, texts: t,
      draw: (width) => bars({ width, groups: traced.map(group), text: (v) => `${short(v * 1000)} ms` }),
      data: () => [["strategy", "process", "waits_for", "seconds_a_step"], ...traced.flatMap((row) => linesOf(row).map((line) => [row.label, line.process, line.peer, line.seconds]))],
    }),
    h("details", {}, h("summary", {}, t.table), table(
      [{ title: t.strategy }, { title: t.process }, { title: t.waitsWhom }, { title: `${t.kinds.wait} ms`, number: true }],
      traced.flatMap((row) => linesOf(row).map((line) => [row.label, processName(t, line.process), name(line.peer),
        number(ctx, `rows.${row.index}.runs.0.trace.waits.${line.at}.2`, milliseconds)]))))];
}
