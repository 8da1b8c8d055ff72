// The viewer: reads the scenes that psring put into the page, and shows one or two of them at a position.

import { apply, hash, isDark, languageNow, onSystemTheme, switchLanguage, switchTheme } from "../common/preferences.js";
import { h } from "../report/dom.js";
import { processName } from "../report/texts.js";
import { listenToKeys, makeControls } from "./controls.js";
import { makeIndex, peakOf } from "./index.js";
import { move } from "./moves.js";
import { makePane } from "./pane.js";
import { aligned, positionAt } from "./phases.js";
import { nextQuestion, question } from "./predict.js";
import { statesOf } from "./state.js";
import { kTexts } from "./texts.js";

const doc = JSON.parse(document.getElementById("data").textContent);
const views = [];

/// A scene is looked through when it is first shown.
function viewOf(number) {
  if (!views[number]) {
    const view = { scene: doc.scenes[number], index: makeIndex(doc.scenes[number]) };
    view.stateAt = statesOf(view);
    views[number] = view;
  }
  return views[number];
}

const now = { left: 0, right: doc.scenes.length > 1 ? 1 : null, byPhase: true, at: 0, process: 0, speed: 10, plays: false, predicts: false, quiz: { good: 0, all: 0, told: "" } };
let panes = [];
let controls = null;
let timer = 0;

const leader = () => viewOf(now.left);
const count = () => leader().scene.events.length;
const numbersOfPanes = () => [now.left, now.right].filter((one) => one !== null);

function show() {
  controls.update(now.at, now.plays);
  panes.forEach(({ pane, view }) => pane.update(view === leader() ? now.at : aligned(leader(), view, now.at, now.byPhase), now.predicts));
  showQuestion();
}

function showQuestion() {
  const place = document.getElementById("question");
  const asked = now.predicts ? nextQuestion(leader(), now.at) : null;
  const ctx = contextOf(0);
  place.replaceChildren(...[now.predicts && now.quiz.told ? h("p", { role: "status" }, now.quiz.told) : null,
    asked === now.at ? question(ctx, leader(), asked, now.quiz, reveal) : null].filter(Boolean));
}
function reveal(at) {
  now.at = at;
  show();
}

/// In the quiz no way forward leads past the next message.
function limited(at) {
  if (!now.predicts || at <= now.at) return at;
  return Math.min(at, nextQuestion(leader(), now.at) ?? at);
}
function go(at) {
  const next = limited(Math.max(0, Math.min(count(), at)));
  if (next === now.at && next === at) return;
  if (next !== now.at) now.quiz.told = "";
  now.at = next;
  show();
}
function stop() {
  now.plays = false;
  clearInterval(timer);
}
function toggle() {
  if (now.plays) {
    stop();
    return show();
  }
  now.plays = true;
  if (now.at === count()) now.at = 0;
  timer = setInterval(() => {
    const before = now.at;
    if (now.at < count()) go(now.at + 1);
    if (now.at === before || now.at === count()) stop();
    controls.update(now.at, now.plays);
  }, 1000 / now.speed);
  return show();
}
const act = {
  go: (at) => { stop(); go(at); },
  move: (unit, way) => { stop(); go(move(leader(), now.at, unit, way)); },
  toggle,
  speed: (value) => {
    now.speed = value;
    if (now.plays) {
      stop();
      toggle();
    }
  },
  peak: () => act.go(peakOf(leader().index, processShown(leader()))),
  wait: () => { if (leader().index.firstWait !== null) act.go(leader().index.firstWait + 1); },
  predict: () => {
    now.predicts = !now.predicts;
    now.quiz.told = "";
    if (now.predicts) now.at = nextQuestion(leader(), now.at) ?? now.at;
    stop();
    render("predict");
  },
};

const contextOf = (pane) => ({ t: kTexts[languageNow()], language: languageNow(), pane });
const processShown = (view) => Math.min(now.process, view.scene.processes.length - 1);

function menu(id, label, value, options, onchange) {
  return h("label", { for: id }, `${label} `, h("select", { id, onchange: (event) => { onchange(event.target.value); render(id); } },
    options.map(([key, text]) => h("option", { value: key, selected: String(key) === String(value) }, text))));
}

function chooser(t) {
  const scenes = doc.scenes.map((scene, number) => [number, scene.label]);
  const longest = numbersOfPanes().map((one) => doc.scenes[one].processes).reduce((a, b) => (b.length > a.length ? b : a));
  return h("div", { class: "choose" },
    scenes.length > 1 ? menu("left", t.scene, now.left, scenes, (value) => { now.left = Number(value); now.at = 0; }) : null,
    scenes.length > 1 ? menu("right", t.beside, now.right ?? "", [["", t.none], ...scenes], (value) => { now.right = value === "" ? null : Number(value); }) : null,
    now.right === null ? null : menu("align", t.align, now.byPhase ? "phase" : "time", [["phase", t.byPhase], ["time", t.byTime]], (value) => { now.byPhase = value === "phase"; }),
    menu("process", t.showMemory, now.process, longest.map((one, p) => [p, processName(t, one.name)]), (value) => { now.process = Number(value); }));
}

function header(t) {
  const press = (id, lang, text, change) => h("button", { type: "button", id, lang, onclick: () => { change(); render(id); } }, text);
  return h("header", {}, h("h1", {}, t.title),
    h("div", { class: "tools" }, press("language", languageNow() === "zh" ? "en" : "zh", t.language, switchLanguage), press("theme", null, isDark() ? t.light : t.dark, switchTheme)));
}

function below(t) {
  const command = (Array.isArray(doc.command) ? doc.command : [doc.command]).join(" ");
  return [h("details", { open: true }, h("summary", {}, t.legend), h("ul", {}, [t.legendBars, t.legendGradient, t.legendVersion, t.legendArrow, t.keys].map((text) => h("li", {}, text)))),
    h("details", {}, h("summary", {}, t.command), h("pre", {}, command), h("p", { class: "quiet" }, doc.program))];
}

function render(focus) {
  apply();
  const { t } = contextOf(0);
  const page = document.getElementById("page");
  const place = scrollY;
  controls = makeControls(contextOf(0), count(), act, now);
  const shown = numbersOfPanes();
  const room = page.clientWidth - parseFloat(getComputedStyle(page).paddingLeft) * 2;
  const beside = shown.length > 1 && room >= 900;
  const width = Math.floor(beside ? (room - 28) / 2 : room);
  panes = shown.map((number, k) => {
    const view = viewOf(number);
    const seek = (time) => act.go(view === leader() ? positionAt(view.scene, time) : aligned(view, leader(), positionAt(view.scene, time), now.byPhase));
    return { view, pane: makePane(contextOf(k), view, width, processShown(view), seek) };
  });
  page.replaceChildren(header(t), chooser(t), h("div", { class: "bar" }, controls.node, h("div", { id: "question" })),
    h("div", { class: beside ? "panes two" : "panes" }, panes.map((one) => one.pane.node)), ...below(t));
  document.title = `${t.title}: ${shown.map((one) => doc.scenes[one].label).join(", ")}`;
  show();
  scrollTo(0, place);
  if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
}

if (hash.has("at")) now.at = Math.max(0, Math.min(count(), Number(hash.get("at")) || 0));
render();
listenToKeys(act, count);
onSystemTheme(() => render());
let waiting = 0;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => render(), 80);
});
