// The viewer: reads the scenes that psring put into the page, and shows one or two of them at a position.

import { apply, hash, isDark, languageNow, onSystemTheme, switchLanguage, switchTheme } from "../common/preferences.js";
import { h } from "../report/dom.js";
import { processName } from "../report/texts.js";
import { listenToKeys, makeControls } from "./controls.js";
import { makeIndex, peakOf } from "./index.js";
import { makeCourse } from "./course.js";
import { move } from "./moves.js";
import { makePane } from "./pane.js";
import { positionAt } from "./phases.js";
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
let course = null;  // of the scenes that are shown; now.at is a stop of it
let controls = null;
let timer = 0;

const leader = () => viewOf(now.left);
const shownViews = () => numbersOfPanes().map(viewOf);
const leaderAt = () => course.placesAt(now.at)[0];
const numbersOfPanes = () => [now.left, now.right].filter((one) => one !== null);

function show() {
  controls.update(now.at, now.plays);
  const places = course.placesAt(now.at);
  panes.forEach((pane, side) => pane.update(places[side], now.predicts));
  showQuestion();
}

function showQuestion() {
  const place = document.getElementById("question");
  const asked = now.predicts ? nextQuestion(leader(), leaderAt()) : null;
  const ctx = contextOf(0);
  place.replaceChildren(...[now.predicts && now.quiz.told ? h("p", { role: "status" }, now.quiz.told) : null,
    asked !== null && asked === leaderAt() ? question(ctx, leader(), asked, now.quiz, reveal) : null].filter(Boolean));
}
function reveal(position) {
  now.at = course.first(0, position);
  show();
}

/// Returns the last stop before the message that the quiz asks for; null: there is none.
function stopBeforeQuestion() {
  const asked = nextQuestion(leader(), leaderAt());
  return asked === null ? null : course.first(0, asked + 1) - 1;
}

/// In the quiz no way forward leads past the next message.
function limited(at) {
  if (!now.predicts || at <= now.at) return at;
  return Math.min(at, stopBeforeQuestion() ?? at);
}
function go(at) {
  const next = limited(Math.max(0, Math.min(course.count, at)));
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
  if (now.at === course.count) now.at = 0;
  timer = setInterval(() => {
    const before = now.at;
    if (now.at < course.count) go(now.at + 1);
    if (now.at === before || now.at === course.count) stop();
    controls.update(now.at, now.plays);
  }, 1000 / now.speed);
  return show();
}
const act = {
  go: (at) => { stop(); go(at); },
  move: (unit, way) => { stop(); go(move(shownViews(), course, now.at, unit, way)); },
  toggle,
  speed: (value) => {
    now.speed = value;
    if (now.plays) {
      stop();
      toggle();
    }
  },
  peak: () => act.go(course.first(0, peakOf(leader().index, processShown(leader())))),
  wait: () => { if (leader().index.firstWait !== null) act.go(course.first(0, leader().index.firstWait + 1)); },
  predict: () => {
    now.predicts = !now.predicts;
    now.quiz.told = "";
    if (now.predicts) now.at = stopBeforeQuestion() ?? now.at;
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
    scenes.length > 1 ? menu("left", t.scene, now.left, scenes, (value) => { now.left = Number(value); }) : null,
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

/// Makes the course of the scenes that are shown; the left one stays where it is.
function align() {
  const key = `${numbersOfPanes()} ${now.byPhase}`;
  if (course?.key === key) return;
  const position = course ? leaderAt() : 0;
  const isSame = course && course.left === now.left;
  course = { ...makeCourse(shownViews(), now.byPhase), key, left: now.left };
  if (isSame || now.start !== undefined) now.at = course.first(0, now.start ?? position);
  else now.at = 0;
  now.start = undefined;
}

function render(focus) {
  apply();
  const { t } = contextOf(0);
  const page = document.getElementById("page");
  const place = scrollY;
  const shown = numbersOfPanes();
  align();
  controls = makeControls(contextOf(0), course.count, act, now);
  const room = page.clientWidth - parseFloat(getComputedStyle(page).paddingLeft) * 2;
  const beside = shown.length > 1 && room >= 900;
  const width = Math.floor(beside ? (room - 28) / 2 : room);
  panes = shown.map((number, k) => {
    const view = viewOf(number);
    const seek = (time) => act.go(course.first(k, positionAt(view.scene, time)));
    return makePane(contextOf(k), view, width, processShown(view), seek);
  });
  page.replaceChildren(header(t), chooser(t), h("div", { class: "bar" }, controls.node, h("div", { id: "question" })),
    h("div", { class: beside ? "panes two" : "panes" }, panes.map((one) => one.node)), ...below(t));
  document.title = `${t.title}: ${shown.map((one) => doc.scenes[one].label).join(", ")}`;
  show();
  scrollTo(0, place);
  if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
}

if (hash.has("at")) now.start = Math.max(0, Number(hash.get("at")) || 0);
render();
listenToKeys(act, () => course.count);
onSystemTheme(() => render());
let waiting = 0;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => render(), 80);
});
