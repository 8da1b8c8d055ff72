// The cluster and the job, and the first row.

import { h } from "../common/dom.js";
import { bytes, shellWord } from "../common/format.js";
import { section } from "../common/parts.js";
import { delayText, rateText } from "./context.js";

const facts = (list) => h("dl", {}, list.filter(([, value]) => value !== undefined && value !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

export function cluster(ctx) {
  const { t, doc, point } = ctx;
  const link = ({ bits_per_second, delay_s }) => t.linkText(rateText(bits_per_second), delayText(delay_s));
  const leftOut = [...(point.left_out ?? []), ...(doc.values_left_out ?? [])];
  return section("cluster", t.clusterTitle,
    h("pre", {}, doc.command.map((word, i) => [i ? " " : "", h("span", {}, shellWord(word))])),
    facts([[t.model, doc.model], [t.workers, t.meshText(point.mesh)], [t.within, link(point.mesh.within)], [t.between, link(point.mesh.between)],
      [t.limit, doc.memory_bytes ? bytes(doc.memory_bytes) : ""], [t.best, point.rows[0].label], [t.why, point.reason[ctx.language]]]),
    leftOut.length ? h("details", {}, h("summary", {}, `${t.leftOut} (${leftOut.length})`), h("ul", {}, leftOut.map((line) => h("li", {}, line)))) : null);
}
