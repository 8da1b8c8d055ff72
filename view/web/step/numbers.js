// The numbers of a state: time, bytes so far and predicted, memory of each process. Each cell names its value, so that a
// test can read it.

import { h, table } from "../common/dom.js";
import { bytes, whole } from "../common/format.js";
import { processName } from "../common/names.js";

const sum = (list) => list.reduce((a, b) => a + b, 0);

/// Returns {node, set}: a cell that is written only if its number changes.
function makeCell(tag, name, write) {
  const node = h(tag, { class: tag === "td" ? "n" : null, "data-name": name });
  let shown;
  const set = (number) => {
    if (number === shown) return;
    shown = number;
    node.setAttribute("data-value", number ?? "");
    node.replaceChildren(...[write(number)].flat().filter(Boolean));
  };
  return { node, set };
}

/// Returns {node, update}. `update` shows the numbers of a state.
export function makeNumbers(ctx, view) {
  const { t } = ctx;
  const { predicted } = view.index;
  const difference = (now) => {
    if (predicted === null || now < predicted) return null;
    return now === predicted ? h("span", { class: "good" }, ` ${t.reached}`) : h("span", { class: "warn" }, ` ${t.more(bytes(now - predicted))}`);
  };
  const time = makeCell("dd", "time", (ns) => `${(ns / 1e6).toFixed(3)} ms`);
  const sent = makeCell("dd", "bytes", (now) => `${bytes(now)} (${whole(now)} B)`);
  const expected = makeCell("dd", "predicted", () => (predicted === null ? t.notPredicted : `${bytes(predicted)} (${whole(predicted)} B)`));
  const reached = h("span", {});
  expected.set(predicted);
  expected.node.append(reached);
  const rows = view.scene.processes.map((_, p) => ["memory", "peak", "sent"].map((name) => makeCell("td", `${name}.${p}`, bytes)));
  const node = h("div", {},
    h("dl", { class: "totals" }, h("dt", {}, t.time), time.node, h("dt", {}, t.bytesSoFar), sent.node, h("dt", {}, t.predictedTotal), expected.node),
    table([{ title: t.process }, { title: t.memoryNow, number: true }, { title: t.peakSoFar, number: true }, { title: t.sentSoFar, number: true }],
      rows.map((cells, p) => [processName(t, view.scene.processes[p].name), ...cells.map((one) => one.node)])));
  const update = (state) => {
    time.set(state.t);
    sent.set(state.bytes);
    reached.replaceChildren(...[difference(state.bytes)].filter(Boolean));
    state.processes.forEach((process, p) => [sum(process.memory), process.peak, process.sent].forEach((one, k) => rows[p][k].set(one)));
  };
  return { node, update };
}
