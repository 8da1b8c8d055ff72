// Each server as a row: its load, its updates, its rows of tables, the worker that it waits for, and its memory.

import { h } from "../common/dom.js";
import { saveButtons } from "../common/figure.js";
import { bars } from "../common/charts.js";
import { bytes, kNothing, short, whole } from "../common/format.js";
import { section } from "../common/parts.js";
import { booked, isLive, kCategories, some } from "./numbers.js";
import { growingTable, makeBar, writeBar } from "./rows.js";
import { memoryParts, seenText, waitingText } from "./workers.js";

const share = (value) => (value == null ? kNothing : `${Math.round(100 * value)} %`);

export function servers(ctx) {
  const { t } = ctx;
  const name = (server) => `${t.server} ${server.rank}`;
  const load = (server) => [{ value: server.busy, colour: "var(--compute)", name: `${t.busy} ${share(server.busy)}`, title: `${t.busy} ${share(server.busy)}` }];
  const largest = () => Math.max(0, ...ctx.snapshot.servers.map((one) => booked(one.memory) ?? 0));
  const table = growingTable({ label: t.serversTitle, classes: "live servers", columns: [
    { name: "rank", title: t.server, text: name },
    { name: "busy", title: t.busy, make: makeBar, write: (bar, server) => writeBar(bar, load(server), 1, share(server.busy)) },
    { name: "updates", title: t.updates, number: true, text: (server) => whole(server.updates) },
    { name: "rows", title: t.rows, number: true, text: (server) => whole(server.rows) },
    { name: "waiting", title: t.waits, text: (server) => waitingText(t, server.waiting) },
    { name: "memory", title: t.memory, make: makeBar, write: (bar, server) => writeBar(bar, memoryParts(t, server.memory), largest(), bytes(booked(server.memory))) },
    { name: "pss", title: "Pss", number: true, text: (server) => bytes(server.memory?.pss) },
    { name: "sent", title: t.sent, number: true, text: (server) => bytes(server.bytes_sent) },
    { name: "received", title: t.received, number: true, text: (server) => bytes(server.bytes_received) },
    { name: "seen", title: t.seen, number: true, text: (server) => seenText(t, server) },
  ] });
  const drawing = () => bars({ width: 900, text: (v) => `${short(v * 100)} %`, groups: [{ name: t.busy,
    bars: ctx.snapshot.servers.map((server) => ({ name: name(server), parts: load(server), text: share(server.busy) })) }] });
  const data = () => [["server", "busy", "updates", "rows", "waits_operation", "waits_for", "waits_since_s", ...kCategories, "rss", "pss", "bytes_sent", "bytes_received"],
    ...ctx.snapshot.servers.map((one) => [one.rank, one.busy, one.updates, one.rows, one.waiting?.operation, one.waiting?.peer, one.waiting?.since_s,
      ...kCategories.map((category) => one.memory?.[category]), one.memory?.rss, one.memory?.pss, one.bytes_sent, one.bytes_received])];
  const node = section("servers", t.serversTitle,
    h("div", { class: "choose" }, saveButtons({ id: "servers", title: t.serversTitle, texts: t, svg: drawing, data })),
    table.node, h("div", { class: "caption quiet", "data-name": "busy" }, t.serversCaption));
  const update = (snapshot) => {
    node.classList.toggle("without-waiting", !isLive(snapshot));
    node.classList.toggle("without-memory", !some(snapshot.servers, "memory"));
    node.classList.toggle("without-bytes", !some(snapshot.servers, "bytes_sent"));
    node.classList.toggle("without-rows", !some(snapshot.servers, "rows"));
    node.classList.toggle("without-load", !some(snapshot.servers, "busy") && !some(snapshot.servers, "updates"));
    table.update(snapshot.servers, (server) => server.rank);
  };
  return { id: "servers", node, has: (snapshot) => snapshot.servers.length > 0, update };
}
