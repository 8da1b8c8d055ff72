// The plan of a collective: rows are ranks, columns are chunks; each round has its messages as arrows, and the chunks have
// the sample values and the ranks whose values they contain.

import { h, s } from "../common/dom.js";
import { short, whole } from "../common/format.js";
import { processName } from "../common/names.js";
import { equalsRecorded, statesOfPlan } from "./collectives.js";
import { operation, unitsName } from "./says.js";

const kRow = 50;
const kHead = 36;
const kName = 84;
const kMostListed = 8;

const number = (value) => (value === null ? "?" : short(value));

function arrow(ctx, x, y1, y2) {
  const bend = (10 + 5 * Math.abs(y2 - y1) / kRow) * (y2 > y1 ? 1 : -1);
  return s("path", { d: `M${x} ${y1} C${x + bend} ${y1} ${x + bend} ${y2} ${x} ${y2}`, fill: "none", stroke: "var(--accent)", "stroke-width": 1.8, "marker-end": `url(#plan-head-${ctx.pane})` });
}

function chunkCell(plan, one, x, y, width, isNew) {
  const share = one.ranks.length / plan.ranks;
  const kept = one.kept ? Object.keys(one.kept).length : 0;
  return [
    s("rect", { x: x + 3, y: y + 3, width: width - 6, height: kRow - 8, rx: 5, fill: "var(--parameters)", "fill-opacity": share * 0.35, stroke: isNew ? "var(--accent)" : "var(--line)", "stroke-width": isNew ? 2 : 1 }),
    s("text", { x: x + 10, y: y + 20, class: "value" }, one.ranks.length === 0 ? "–" : one.value === null ? "" : number(one.value)),
    s("text", { x: x + 10, y: y + 36, class: "letter" }, one.ranks.length > 4 && one.ranks.length === plan.ranks ? `0–${plan.ranks - 1}` : one.ranks.join("+"), kept ? ` (${kept}/${plan.ranks})` : null),
  ];
}

function drawing(ctx, view, collective, state, round) {
  const { plan } = collective;
  const width = 96;
  const total = kName + width * plan.chunks.length + 10;
  const y = (rank) => kHead + rank * kRow;
  const moves = round.flatMap(([from, to, first, end]) => plan.chunks.map((chunk, c) => ({ from, to, c, isIn: first <= chunk[0] && chunk[1] <= end })).filter((one) => one.isIn));
  const isNew = (rank, c) => moves.some((one) => one.to === rank && one.c === c);
  const height = kHead + plan.ranks * kRow + 4;
  return s("svg", { width: total, height, viewBox: `0 0 ${total} ${height}`, role: "img", "aria-label": ctx.t.planLabel, class: "plan" },
    s("defs", {}, s("marker", { id: `plan-head-${ctx.pane}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, orient: "auto", markerUnits: "userSpaceOnUse" }, s("path", { d: "M0 0 L8 4 L0 8 z", fill: "var(--accent)" }))),
    plan.chunks.map((chunk, c) => [s("text", { x: kName + c * width + 10, y: 14, class: "process" }, ctx.t.chunk(c)), s("text", { x: kName + c * width + 10, y: 29, class: "letter" }, `${whole(chunk[0])}–${whole(chunk[1])}`)]),
    state.map((chunks, rank) => [
      s("text", { x: 2, y: y(rank) + 26, class: "process" }, processName(ctx.t, view.scene.processes[collective.members[rank]].name)),
      chunks.map((one, c) => s("g", { "data-chunk": `${rank}.${c}`, "data-value": one.value ?? "", "data-ranks": one.ranks.join(" ") }, chunkCell(plan, one, kName + c * width, y(rank), width, isNew(rank, c)))),
    ]),
    moves.map(({ from, to, c }) => arrow(ctx, kName + (c + 0.76) * width, y(from) + kRow / 2, y(to) + kRow / 2)));
}

/// Writes the round's messages with their arithmetic: 'worker 0 → 1, chunk 3: 0.12 + 0.34 = 0.46'.
function arithmetic(ctx, view, collective, states, at) {
  const { plan } = collective;
  const name = (rank) => processName(ctx.t, view.scene.processes[collective.members[rank]].name);
  const lines = plan.rounds[at - 1].flatMap(([from, to, first, end, action]) => plan.chunks.flatMap((chunk, c) => {
    if (first > chunk[0] || chunk[1] > end) return [];
    const sent = states[at - 1][from][c];
    const was = states[at - 1][to][c];
    const now = states[at][to][c];
    const result = action === "copy" ? number(sent.value) : action === "reduce" ? `${number(was.value)} + ${number(sent.value)} = ${number(now.value)}`
      : ctx.t.keeps(number(sent.value), now.kept === null ? number(now.value) : null);
    return [`${name(from)} → ${name(to)}${ctx.t.listSep}${ctx.t.chunk(c)}${sent.value === null ? "" : ctx.t.colon + result}`];
  }));
  const more = lines.length - kMostListed;
  return h("ul", {}, lines.slice(0, kMostListed).map((one) => h("li", {}, one)), more > 0 ? h("li", {}, ctx.t.moreMessages(more)) : null);
}

/// Returns {node, update, toggle, close, round}; `close` tells whether a plan was open. `kept` holds {number, round}: the collective whose plan is open, or null.
export function makePlan(ctx, view, kept) {
  const { t } = ctx;
  const { list, latest } = view.index.collectives;
  const node = h("div", { class: "collective" });
  let position = 0;
  let shown = null;
  const title = (one) => `${operation(t, one.name)}${one.units ? ` ${unitsName(view.scene, one.units)}` : ""}`;
  const button = (id, text, label, onclick, disabled) => h("button", { type: "button", id: `${id}-${ctx.pane}`, "aria-label": label, title: label, disabled, onclick }, text);
  const closed = () => {
    const number = latest[position];
    return number === null ? [] : [button("plan", t.openPlan(title(list[number])), t.openPlan(title(list[number])), toggle)];
  };
  const opened = () => {
    const one = list[kept.number];
    const algorithm = one.plan.algorithm.replaceAll("-", "_");
    const states = statesOfPlan(one);
    const last = states.length - 1;
    kept.round = Math.max(0, Math.min(last, kept.round));
    const at = kept.round;
    const { plan } = one;
    const equal = at === last ? equalsRecorded(one, states[last]) : null;
    const isDivision = at > plan.rounds.length;
    return [h("div", { class: "buttons" }, h("strong", {}, t.planOf(title(one), t.algorithms[algorithm] ?? plan.algorithm, plan.ranks, whole(plan.elements), plan.type)),
      button("round-back", `‹ ${t.round}`, t.roundBack, () => move(-1, "round-back"), at === 0), button("round-next", `${t.round} ›`, t.roundNext, () => move(1, "round-next"), at === last),
      button("plan", t.close, t.closePlan, toggle)),
    h("p", { class: "quiet" }, t.algorithmSays[algorithm] ?? ""),
    h("p", { role: "status", id: `round-${ctx.pane}` }, at === 0 ? t.beforeRounds(plan.rounds.length) : isDivision ? t.division(plan.ranks) : t.roundOf(at, plan.rounds.length),
      equal === null ? null : h("span", { class: equal ? "good" : "bad" }, ` ${equal ? t.equalsRecorded : t.differs}`)),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t.planLabel }, drawing(ctx, view, one, states[at], at > 0 && !isDivision ? plan.rounds[at - 1] : [])),
    at > 0 && !isDivision ? arithmetic(ctx, view, one, states, at) : null, h("p", { class: "quiet" }, one.before.some(Boolean) ? t.sampleLegend : t.noSamples)].filter(Boolean);
  };
  const draw = () => {
    const key = kept.number === null ? `closed ${latest[position]}` : `${kept.number} ${kept.round}`;
    if (key === shown) return;
    shown = key;
    node.replaceChildren(...(kept.number === null ? closed() : opened()));
  };
  const focus = (...ids) => ids.map((id) => document.getElementById(`${id}-${ctx.pane}`)).find((one) => one && !one.disabled)?.focus({ preventScroll: true });
  function toggle() {
    Object.assign(kept, { number: kept.number === null ? latest[position] : null, round: 0 });
    draw();
    if (kept.number === null) focus("plan");
    else focus("round-next", "plan");
  }
  function move(way, id) {
    if (kept.number === null) return;
    kept.round += way;
    draw();
    if (id) focus(id, "round-back", "round-next");
  }
  const update = (at) => {
    position = at;
    draw();
  };
  const close = () => {
    if (kept.number === null) return false;
    toggle();
    return true;
  };
  return { node, update, toggle, close, round: move };
}
