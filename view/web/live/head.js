// The top of the page: the run, and its progress.

import { h } from "../common/dom.js";
import { shellWord, short, whole } from "../common/format.js";
import { clock, duration, rate } from "./numbers.js";
import { write } from "./rows.js";

export const percent = ({ progress }) => (progress.steps ? Math.min(100, Math.floor((100 * (progress.step ?? 0)) / progress.steps)) : null);

/// Returns the text of the window's title.
export function title(t, snapshot) {
  const done = percent(snapshot);
  const state = snapshot.phase === "training" && done !== null ? `${done} %` : t.phases[snapshot.phase] ?? snapshot.phase;
  return `${state} · ${snapshot.run.name || t.title}`;
}

function tile(name, text) {
  const value = h("strong", { "data-name": name }, "—");
  return { node: h("div", { class: "tile", "data-tile": name }, h("span", {}, text), value), value };
}

const commandText = (command) => (Array.isArray(command) ? command.map(shellWord).join(" ") : String(command ?? ""));

const describe = (t, { run }) => [run.strategy, run.model, run.data, run.workers == null ? null : t.workersCount(run.workers),
  run.servers ? t.serversCount(run.servers) : null, run.global_batch == null ? null : t.batchOf(run.global_batch)].filter(Boolean).join(" · ");

export function head(ctx) {
  const { t } = ctx;
  const name = h("h1", { id: "name" }, t.title);
  const what = h("p", { id: "what" });
  const command = h("pre", { id: "command" });
  const more = h("details", {}, h("summary", {}, t.command), command);
  const phase = h("span", { class: "badge", id: "phase" });
  const error = h("span", { class: "bad", id: "error" });
  const link = h("p", { class: "quiet", id: "connection" });
  const filled = h("i");
  const track = h("div", { class: "progress", role: "progressbar", "aria-label": t.progress, "aria-valuemin": "0", "aria-valuemax": "100" }, filled);
  const tiles = Object.fromEntries([["step", t.step], ["loss", t.loss], ["speed", t.samples], ["left", t.left], ["elapsed", t.elapsed]].map(([id, text]) => [id, tile(id, text)]));
  const showConnection = () => {
    const status = ctx.status === "open" && ctx.ended() ? "ended" : ctx.status;
    write(link, t.connection[status](ctx.at ? clock(ctx.at) : null));
    link.className = ["open", "connecting"].includes(ctx.status) || ctx.ended() ? "quiet" : "bad";
  };
  const update = (snapshot) => {
    const { run, progress } = snapshot;
    write(name, run.name || t.title);
    write(what, describe(t, snapshot));
    write(command, commandText(run.command));
    more.hidden = !run.command?.length;
    write(phase, t.phases[snapshot.phase] ?? snapshot.phase);
    phase.className = `badge ${{ done: "good", failed: "bad", recovering: "warn" }[snapshot.phase] ?? ""}`;
    write(error, snapshot.error ?? "");
    const done = percent(snapshot);
    filled.setAttribute("style", `width:${done ?? 0}%`);
    if (done === null) track.removeAttribute("aria-valuenow");
    else track.setAttribute("aria-valuenow", done);
    write(tiles.step.value, progress.steps ? t.ofSteps(whole(progress.step), whole(progress.steps)) : whole(progress.step));
    write(tiles.loss.value, short(progress.loss));
    const tokens = progress.tokens_per_second != null;
    write(tiles.speed.node.firstChild, tokens ? t.tokens : t.samples);
    write(tiles.speed.value, rate(tokens ? progress.tokens_per_second : progress.samples_per_second));
    write(tiles.left.value, duration(t, progress.left_s));
    write(tiles.elapsed.value, duration(t, snapshot.time_s));
  };
  const nodes = [
    h("header", {}, name, ctx.buttons),
    what,
    h("div", { class: "state", role: "status" }, h("p", {}, phase, " ", error), link),
    track,
    h("div", { class: "tiles" }, Object.values(tiles).map((one) => one.node)),
    more,
  ];
  return { nodes, update, showConnection };
}
