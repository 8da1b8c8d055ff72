// The numbers of a state: time, bytes so far and predicted, memory of each process. Each cell names its value, so that a
// test can read it.

import { h, table } from "../report/dom.js";
import { bytes, whole } from "../report/format.js";
import { processName } from "../report/texts.js";

const sum = (list) => list.reduce((a, b) => a + b, 0);
const value = (name, number, text) => h("td", { class: "n", "data-name": name, "data-value": number }, text);

export function numbers(ctx, view, state) {
  const { t } = ctx;
  const { predicted } = view.index;
  const difference = predicted === null ? null : state.bytes - predicted;
  const total = h("dl", { class: "totals" },
    h("dt", {}, t.time), h("dd", {}, `${(state.t / 1e6).toFixed(3)} ms`),
    h("dt", {}, t.bytesSoFar), h("dd", { "data-name": "bytes", "data-value": state.bytes }, `${bytes(state.bytes)} (${whole(state.bytes)} B)`),
    h("dt", {}, t.predictedTotal), h("dd", { "data-name": "predicted", "data-value": predicted ?? "" },
      predicted === null ? t.notPredicted : `${bytes(predicted)} (${whole(predicted)} B)`,
      difference === 0 ? h("span", { class: "good" }, ` ${t.reached}`) : difference > 0 ? h("span", { class: "warn" }, ` ${t.more(bytes(difference))}`) : null));
  const rows = state.processes.map((process, p) => [
    processName(t, view.scene.processes[p].name),
    value(`memory.${p}`, sum(process.memory), bytes(sum(process.memory))),
    value(`peak.${p}`, process.peak, bytes(process.peak)),
    value(`sent.${p}`, process.sent, bytes(process.sent)),
  ]);
  return [total, table([{ title: t.process }, { title: t.memoryNow, number: true }, { title: t.peakSoFar, number: true }, { title: t.sentSoFar, number: true }], rows)];
}
