// The quiz: the next message of the exchange is hidden until the reader has answered who sends what to whom.

import { h } from "../common/dom.js";
import { processName } from "../common/names.js";
import { messageLabel, operation, unitsName } from "./says.js";

/// Returns the position before the next exchange message at or after `at`; null: there is none.
export function nextQuestion(view, at) {
  for (let i = at; i < view.scene.events.length; ++i) {
    const e = view.scene.events[i];
    if (e.e === "send" && e.exchange) return i;
  }
  return null;
}

const contentOf = (ctx, view, frame) => `${operation(ctx.t, frame.name)} ${unitsName(view.scene, frame.units)}`;

const select = (id, label, options) => h("label", {}, `${label} `, h("select", { id }, options.map(([value, text]) => h("option", { value }, text))));

/// Returns the question about the event at `at`. `quiz` holds {good, all, told}; `go` reveals the message.
export function question(ctx, view, at, quiz, go, again) {
  const { t } = ctx;
  const frame = view.index.frames[view.scene.events[at].frame];
  const processes = view.scene.processes.map((one, p) => [p, processName(t, one.name)]);
  const contents = [...new Set(view.index.frames.filter((one) => one?.exchange).map((one) => contentOf(ctx, view, one)))].sort();
  const judge = () => {
    const value = (id) => document.getElementById(id).value;
    const right = Number(value("quiz-from")) === frame.from && Number(value("quiz-to")) === frame.to && value("quiz-what") === contentOf(ctx, view, frame);
    ++quiz.all;
    quiz.good += right;
    quiz.told = `${right ? t.right : t.wrong} ${t.itIs(messageLabel(ctx, view, frame))} ${t.score(quiz.good, quiz.all)}`;
    go(at + 1);
  };
  return h("form", { class: "quiz", onsubmit: (event) => { event.preventDefault(); judge(); } }, h("strong", {}, t.ask),
    select("quiz-from", t.sender, processes), select("quiz-what", t.message, contents.map((one) => [one, one])), select("quiz-to", t.receiver, processes),
    h("button", { type: "submit", id: "quiz-answer" }, t.answer),
    h("button", { type: "button", id: "quiz-show", onclick: () => {
      quiz.told = t.itIs(messageLabel(ctx, view, frame));
      go(at + 1);
    } }, t.show));
}
