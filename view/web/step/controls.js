// The buttons, the slider and the keys.

import { h } from "../common/dom.js";

const kUnits = ["step", "phase", "message", "event"];
export const kSpeeds = [2, 10, 40, 200];

const button = (id, text, title, onclick, pressed) => h("button", { type: "button", id, title, "aria-label": title, "aria-pressed": pressed, onclick }, text);

/// Returns {node, update}. `act` has the functions that the controls call: go, move, toggle, speed, jump, predict.
export function makeControls(ctx, count, act, now) {
  const { t } = ctx;
  const slider = h("input", { type: "range", id: "slider", min: 0, max: count, step: 1, value: now.at, "aria-label": t.position, oninput: (event) => act.go(Number(event.target.value)) });
  const play = h("button", { type: "button", id: "play", onclick: act.toggle }, t.play);
  const speed = h("select", { id: "speed", "aria-label": t.speed, title: t.speed, onchange: (event) => act.speed(Number(event.target.value)) },
    kSpeeds.map((one) => h("option", { value: one, selected: one === now.speed }, `${one}/s`)));
  const node = h("div", { class: "controls" },
    h("div", { class: "buttons" },
      button("to-start", "|‹", t.toStart, () => act.go(0)),
      kUnits.map((unit) => button(`back-${unit}`, `‹ ${t.units[unit]}`, t.back[unit], () => act.move(unit, -1))),
      play, speed,
      [...kUnits].reverse().map((unit) => button(`next-${unit}`, `${t.units[unit]} ›`, t.forward[unit], () => act.move(unit, 1))),
      button("to-end", "›|", t.toEnd, () => act.go(count)),
      button("peak", t.peak, t.peak, act.peak), button("wait", t.firstWait, t.firstWait, act.wait),
      button("predict", t.predict, t.ask, act.predict, now.predicts ? "true" : "false")),
    slider);
  const update = (at, plays) => {
    slider.value = at;
    play.textContent = plays ? t.pause : t.play;
  };
  return { node, update };
}

/// Connects the keys with the same actions.
export function listenToKeys(act, countOf) {
  document.addEventListener("keydown", (event) => {
    const inField = event.target instanceof HTMLSelectElement || event.target instanceof HTMLInputElement;
    if (event.key === "Escape" && !(event.target instanceof HTMLSelectElement)) return act.escape();
    if (event.altKey || event.metaKey || inField) return undefined;
    const unit = event.shiftKey ? "phase" : event.ctrlKey ? "message" : "event";
    const actions = { ArrowRight: () => act.move(unit, 1), ArrowLeft: () => act.move(unit, -1), Home: () => act.go(0), End: () => act.go(countOf()), m: act.peak, w: act.wait, k: act.kill, c: act.plan, "[": () => act.round(-1), "]": () => act.round(1) };
    if (event.key === " " && !(event.target instanceof HTMLButtonElement)) actions[" "] = act.toggle;
    const action = actions[event.key];
    if (!action || (event.ctrlKey && !event.key.startsWith("Arrow"))) return undefined;
    event.preventDefault();
    return action();
  });
}
