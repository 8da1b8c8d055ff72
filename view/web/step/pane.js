// One pane: a scene at a position. `draw` builds what does not change; `update` shows a state.

import { h } from "../report/dom.js";
import { keys } from "../report/context.js";
import { makeGrid } from "./grid.js";
import { makeNumbers } from "./numbers.js";
import { phaseAt } from "./phases.js";
import { messageLabel, sentence, sourceOf } from "./says.js";
import { kCategories, lookOf, timeline } from "./timeline.js";

const kMostListed = 8;

function flying(ctx, view, state) {
  const labels = state.flying.map((number) => messageLabel(ctx, view, view.index.frames[number]));
  const more = labels.length - kMostListed;
  return [h("p", { class: "quiet" }, ctx.t.inFlight(labels.length)),
    h("ul", {}, labels.slice(0, more > 0 ? kMostListed : undefined).map((label) => h("li", {}, label)), more > 0 ? h("li", {}, ctx.t.moreMessages(more)) : null)];
}

/// Returns {node, update}. `seek` takes a time of this pane's scene.
export function makePane(ctx, view, width, process, seek) {
  const { t } = ctx;
  const what = h("p", { class: "what", id: `what-${ctx.pane}` });
  const why = h("p", { class: "why" });
  const line = h("p", { class: "line" });
  const where = h("span", { class: "quiet" });
  const grid = makeGrid(ctx, view, width);
  const list = h("div", { class: "flying" });
  const numbers = makeNumbers(ctx, view);
  const time = timeline(ctx, view, width, process, seek);
  const node = h("section", { class: "pane", id: `pane-${ctx.pane}`, "data-label": view.scene.label },
    h("h2", {}, view.scene.label, " ", where),
    view.scene.error ? h("p", { class: "bad" }, `${t.failed}: ${view.scene.error}`) : null,
    h("div", { class: "now", "aria-live": "polite" }, what, why), line,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t.gridLabel }, grid.node), list, time.node,
    keys([...["forward", "backward", "update", "other", "wait", "transfer"].map((kind) => [lookOf(kind), t.kinds[kind]])]),
    keys(kCategories.map((name) => [`var(--${name})`, t.categories[name]])),
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
    if (listed !== String(state.flying)) {
      listed = String(state.flying);
      list.replaceChildren(...flying(ctx, view, state));
    }
    numbers.update(state);
    time.move(state.t, hides);
    node.setAttribute("data-at", at);
  };
  return { node, update };
}
