// One pane: a scene at a position. `draw` builds what does not change; `update` shows a state.

import { h } from "../common/dom.js";
import { processName } from "../common/names.js";
import { keys } from "../common/parts.js";
import { makeGrid } from "./grid.js";
import { makeNumbers } from "./numbers.js";
import { phaseAt } from "./phases.js";
import { makePlan } from "./plan.js";
import { messageLabel, sentence, sourceOf } from "./says.js";
import { categoriesOf, lookOf, timeline } from "./timeline.js";

const kMostListed = 4;

/// Puts a title before a key: both drawings have a key, and use the same colours.
function titled(title, node) {
  node.prepend(h("span", {}, title));
  return node;
}

function flying(ctx, view, state) {
  const labels = state.flying.map((number) => messageLabel(ctx, view, view.index.frames[number]));
  const more = labels.length - kMostListed;
  return [h("p", { class: "quiet" }, ctx.t.inFlight(labels.length)),
    h("ul", {}, labels.slice(0, more > 0 ? kMostListed : undefined).map((label) => h("li", {}, label)), more > 0 ? h("li", {}, ctx.t.moreMessages(more)) : null)];
}

/// Says which death the pane shows, with a way back; or why a death cannot be shown.
function deathLine(ctx, view, act) {
  const { scene } = view;
  if (!scene.run && !act.notice) return null;
  const { process, step } = scene.runs?.[scene.run] ?? {};
  return h("p", { class: "death", role: "status", id: `death-${ctx.pane}` }, scene.run ? ctx.t.shownDeath(processName(ctx.t, scene.processes[process].name), step) : "",
    scene.run ? [" ", h("button", { type: "button", id: `revive-${ctx.pane}`, onclick: () => act.kill(process) }, ctx.t.revive)] : null,
    act.notice ? ` ${act.notice}` : null);
}

/// Returns {node, update}. `act` has `seek`, which takes a time of this pane's scene, `kill`, which takes a process, the
/// `notice` about a death, the `plan` that is open, and the `scale` that panes side by side share.
export function makePane(ctx, view, width, process, act) {
  const { t } = ctx;
  const what = h("p", { class: "what", id: `what-${ctx.pane}` });
  const why = h("p", { class: "why" });
  const line = h("p", { class: "line", hidden: !view.scene.sources?.length });
  const where = h("span", { class: "quiet" });
  const grid = makeGrid(ctx, view, width, act.kill);
  const list = h("div", { class: "flying" });
  const plan = makePlan(ctx, view, act.plan);
  const numbers = makeNumbers(ctx, view);
  const time = timeline(ctx, view, width, process, act);
  const node = h("section", { class: "pane", id: `pane-${ctx.pane}`, "data-label": view.scene.label },
    h("h2", {}, view.scene.label, " ", where),
    deathLine(ctx, view, act),
    view.scene.error ? h("p", { class: "bad" }, `${t.failed}: ${view.scene.error}`) : null,
    h("div", { class: "now", "aria-live": "polite" }, what, why), line,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t.gridLabel }, grid.node), plan.node, list, time.node,
    titled(t.timeKeys, keys(["forward", "backward", "update", "other", "wait", "transfer"].map((kind) => [lookOf(kind), t.kinds[kind]]))),
    titled(t.memoryKeys, keys(categoriesOf([view.scene]).map((name) => [`var(--${name})`, t.categories[name]]))),
    h("p", { class: "quiet" }, t.predictedLine), numbers.node);
  let listed = null;
  const update = (at, hides) => {
    const state = view.stateAt(at);
    const said = sentence(ctx, view, state, at);
    const phase = view.index.phases[phaseAt(view.index.phases, at)];
    what.textContent = said.what;
    why.textContent = said.why;
    where.textContent = `${t.phaseNow(phase.step, t.phases[phase.phase])} · ${t.eventOf(at, view.scene.events.length)}`;
    const source = sourceOf(view, at);
    line.replaceChildren(...(source ? [h("code", {}, t.sourceLine(source)), h("code", { class: "code" }, source.text ?? "")] : []));
    grid.update(state, at);
    plan.update(at);
    if (listed !== String(state.flying)) {
      listed = String(state.flying);
      list.replaceChildren(...flying(ctx, view, state));
    }
    numbers.update(state);
    time.move(state.t, hides);
    node.setAttribute("data-at", at);
  };
  return { node, update, plan };
}
