// Each worker as a row: its step, the parts of its last step, the process that it waits for, and its memory.

import { bars } from "../common/charts.js";
import { h } from "../common/dom.js";
import { saveButtons } from "../common/figure.js";
import { bytes, fixed, kNothing, milliseconds, short, whole } from "../common/format.js";
import { processName } from "../common/names.js";
import { keys, section } from "../common/parts.js";
import { booked, duration, isLive, isStale, kCategories, some } from "./numbers.js";
import { growingTable, makeBar, write, writeBar } from "./rows.js";

export const memoryParts = (t, memory) => kCategories.map((name) => ({ value: memory?.[name], colour: `var(--${name})`, name: `${t.categories[name]} ${bytes(memory?.[name])}` }));

/// A pipeline's bubble is a part of its exposed time, and has a part of its own here.
function stepParts(t, worker) {
  const rest = worker.step_s == null ? null : Math.max(0, worker.step_s - (worker.compute_s ?? 0) - (worker.exposed_s ?? 0));
  const bubble = worker.bubble_s == null ? [] : [["bubble_s", worker.bubble_s, "var(--bubble)", t.bubble]];
  const exposed = worker.exposed_s == null ? null : Math.max(0, worker.exposed_s - (worker.bubble_s ?? 0));
  return [["compute_s", worker.compute_s, "var(--compute)", t.compute], ...bubble, ["exposed_s", exposed, "var(--exposed)", t.exposed], ["rest_s", rest, "var(--staging)", t.rest]]
    .map(([field, value, colour, name]) => ({ field, value, colour, title: `${name} ${milliseconds(value)} ms`, name: `${name} ${milliseconds(value)} ms` }));
}

const most = (list) => Math.max(0, ...list.filter((value) => value != null));

const kOrders = {
  rank: (a, b) => a.rank - b.rank,
  lag: (a, b) => (b.lag ?? -1) - (a.lag ?? -1) || a.rank - b.rank,
  step_s: (a, b) => (b.step_s ?? -1) - (a.step_s ?? -1) || a.rank - b.rank,
};

/// Returns a sentence on the process that most workers wait for.
function whomTheyWaitFor(t, { workers }) {
  const waiting = workers.filter((worker) => worker.waiting);
  if (waiting.length === 0) return t.nobodyWaits;
  const counts = new Map();
  for (const { waiting: { peer } } of waiting) if (peer) counts.set(peer, (counts.get(peer) ?? 0) + 1);
  const [peer, count] = [...counts].sort((a, b) => b[1] - a[1])[0] ?? [null, 0];
  return t.waitingNow(waiting.length, workers.length) + (peer ? t.mostFor(count, processName(t, peer)) : "") + t.stop;
}

/// Returns the text of a process's `waiting`.
export const waitingText = (t, waiting) =>
  waiting ? t.waitsFor(waiting.peer ? processName(t, waiting.peer) : null, t.operations[waiting.operation] ?? waiting.operation, duration(t, waiting.since_s)) : kNothing;

export const seenText = (t, { seen_s }) => (seen_s == null ? kNothing : t.ago(duration(t, seen_s)));

/// Returns a worker's place on the axes along which the mesh has more than one, such as "copy 1, stage 0".
function placeText(t, mesh, place) {
  if (!mesh || !place) return kNothing;
  const axes = [["data", t.copy, place.data], ["pipeline", t.stage, place.stage], ["tensor", t.tensorRank, place.tensor]];
  return axes.filter(([axis]) => mesh[axis] > 1).map(([, name, number]) => `${name} ${number}`).join(t.comma);
}

const bubbleText = ({ bubble_s, step_s }) => (bubble_s == null || !(step_s > 0) ? kNothing : `${fixed((100 * bubble_s) / step_s, 1)} %`);

function rowsOf(ctx) {
  const { t } = ctx;
  const longest = () => most(ctx.snapshot.workers.map((worker) => Math.max(worker.step_s ?? 0, (worker.compute_s ?? 0) + (worker.exposed_s ?? 0))));
  const largest = () => most(ctx.snapshot.workers.map((worker) => booked(worker.memory)));
  return growingTable({ label: t.workersTitle, classes: "live workers", columns: [
    { name: "rank", title: t.worker, text: (worker) => `${t.worker} ${worker.rank}` },
    { name: "place", title: t.place, text: (worker) => placeText(t, ctx.snapshot.run.mesh, worker.place) },
    { name: "step", title: t.step, number: true, text: (worker) => whole(worker.step) },
    { name: "lag", title: t.lag, number: true, text: (worker) => whole(worker.lag) },
    { name: "time", title: t.lastStep, make: makeBar, write: (bar, worker) => writeBar(bar, stepParts(t, worker), longest(), worker.step_s == null ? kNothing : `${milliseconds(worker.step_s)} ms`) },
    { name: "bubble", title: t.bubble, number: true, text: bubbleText },
    { name: "waiting", title: t.waits, text: (worker) => waitingText(t, worker.waiting) },
    { name: "staleness", title: t.staleness, number: true, text: (worker) => short(worker.staleness) },
    { name: "memory", title: t.memory, make: makeBar, write: (bar, worker) => writeBar(bar, memoryParts(t, worker.memory), largest(), bytes(booked(worker.memory))) },
    { name: "pss", title: "Pss", number: true, text: (worker) => bytes(worker.memory?.pss) },
    { name: "sent", title: t.sent, number: true, text: (worker) => bytes(worker.bytes_sent) },
    { name: "received", title: t.received, number: true, text: (worker) => bytes(worker.bytes_received) },
    { name: "seen", title: t.seen, number: true, text: (worker) => seenText(t, worker) },
  ] });
}

const csvOf = (t, workers) => [["worker", "copy", "stage", "tensor_rank", "step", "lag", "step_s", "compute_s", "exposed_s", "bubble_s", "staleness", "waits_operation", "waits_for", "waits_since_s", ...kCategories, "rss", "pss", "bytes_sent", "bytes_received"],
  ...workers.map((one) => [one.rank, one.place?.data, one.place?.stage, one.place?.tensor, one.step, one.lag, one.step_s, one.compute_s, one.exposed_s, one.bubble_s, one.staleness, one.waiting?.operation, one.waiting?.peer, one.waiting?.since_s,
    ...kCategories.map((name) => one.memory?.[name]), one.memory?.rss, one.memory?.pss, one.bytes_sent, one.bytes_received])];

export function workers(ctx) {
  const { t } = ctx;
  const table = rowsOf(ctx);
  const sentence = h("p", { id: "waiting-now" });
  const order = h("select", { id: "order", onchange: (event) => {
    ctx.order = event.target.value;
    update(ctx.snapshot);
  } }, Object.keys(kOrders).map((name) => h("option", { value: name, selected: name === ctx.order }, t.orders[name])));
  const drawing = () => bars({ width: 900, text: (v) => `${short(v * 1000)} ms`, groups: [{ name: t.lastStep,
    bars: ctx.snapshot.workers.map((worker) => ({ name: `${t.worker} ${worker.rank}`, parts: stepParts(t, worker), text: `${milliseconds(worker.step_s)} ms` })) }] });
  const node = section("workers", t.workersTitle, sentence,
    h("div", { class: "choose" }, h("label", { for: "order" }, t.order), order,
      saveButtons({ id: "workers", title: t.workersTitle, texts: t, svg: drawing, data: () => csvOf(t, ctx.snapshot.workers) })),
    keys([["var(--compute)", t.compute], ["var(--exposed)", t.exposed], ["var(--staging)", t.rest]]),
    h("div", { "data-name": "bubble" }, keys([["var(--bubble)", t.bubbleKey]])),
    h("div", { "data-name": "memory" }, keys(kCategories.map((name) => [`var(--${name})`, t.categories[name]]))),
    table.node,
    h("div", { class: "caption quiet" }, t.workersCaption));
  const update = (snapshot) => {
    node.classList.toggle("without-waiting", !isLive(snapshot));
    node.classList.toggle("without-staleness", !isStale(snapshot));
    node.classList.toggle("without-mesh", !snapshot.run.mesh);
    node.classList.toggle("without-bubble", !some(snapshot.workers, "bubble_s"));
    node.classList.toggle("without-memory", !some(snapshot.workers, "memory"));
    node.classList.toggle("without-bytes", !some(snapshot.workers, "bytes_sent"));
    sentence.hidden = !isLive(snapshot);
    write(sentence, whomTheyWaitFor(t, snapshot));
    table.update([...snapshot.workers].sort(kOrders[ctx.order]), (worker) => worker.rank);
  };
  return { id: "workers", node, has: (snapshot) => snapshot.workers.length > 0, update };
}
