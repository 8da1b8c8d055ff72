// The memory of each row's fullest process by category, against the limit.

import { bars } from "../common/charts.js";
import { figure } from "../common/figure.js";
import { bytes, byteTicks } from "../common/format.js";
import { keys, section } from "../common/parts.js";
import { barGroups } from "./context.js";

const kCategories = ["parameters", "gradients", "optimizer", "activations", "communication", "staging", "index"];
const kMostBars = 16;
const sum = (memory) => Object.values(memory).reduce((a, b) => a + b, 0);

export function memory(ctx) {
  const { t, doc } = ctx;
  const few = ctx.rows.slice(0, kMostBars);
  // A colocated server is a part of its worker's process.
  const worker = (row) => Object.fromEntries(kCategories.map((name) => [name, (row.worker_memory[name] ?? 0) + (row.guest_memory[name] ?? 0)]));
  const fullest = (row) => (sum(row.server_memory) > sum(worker(row)) ? ["server", row.server_memory] : ["worker", worker(row)]);
  const used = kCategories.filter((name) => few.some((row) => (fullest(row)[1][name] ?? 0) > 0));
  const bar = (row) => {
    const [role, parts] = fullest(row);
    return { name: row.label, text: `${bytes(row.process_bytes)}${role === "server" ? ` ${t.server}` : ""}`, tick: doc.memory_bytes,
             parts: used.map((name) => ({ value: parts[name], colour: `var(--${name})`, title: `${t.categories[name]} ${bytes(parts[name] ?? 0)}` })) };
  };
  return section("memory", t.memoryTitle, keys(used.map((name) => [`var(--${name})`, t.categories[name]])),
    figure({
      id: "rows-memory", title: t.memoryRowsFigure, texts: t, caption: doc.memory_bytes ? t.memoryRowsCaption : undefined,
      draw: (width) => bars({ width, groups: barGroups(few.map(bar), width), text: bytes, axisTicks: (least, most, count) => byteTicks(most, count) }),
      data: () => [["label", "process", "category", "bytes"], ...ctx.rows.flatMap((row) => [["worker", row.worker_memory], ["server", row.server_memory], ["server in a worker", row.guest_memory]]
        .flatMap(([role, parts]) => Object.entries(parts).map(([name, value]) => [row.label, role, name, value])))],
    }));
}
