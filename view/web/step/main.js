// The viewer: reads the scenes that psring put into the page, and shows one or two of them at a position.

import { preferenceButtons } from "../common/buttons.js";
import { h, onResize } from "../common/dom.js";
import { processName } from "../common/names.js";
import { apply, hash, languageNow, onSystemTheme } from "../common/preferences.js";
import { listenToKeys, makeControls } from "./controls.js";
import { makeIndex, peakOf } from "./index.js";
import { makeCourse } from "./course.js";
import { distinguish } from "./figures.js";
import { move } from "./moves.js";
import { listenToDrops, openFile } from "./open.js";
import { makePane } from "./pane.js";
import { positionAt } from "./phases.js";
import { nextQuestion, question } from "./predict.js";
import { deathOf, runWithDeath, sceneOfRun } from "./runs.js";
import { statesOf } from "./state.js";
import { summary } from "./summary.js";
import { scaleOf } from "./timeline.js";
import { en } from "./texts_en.js";
import { zh } from "./texts_zh.js";

let doc = JSON.parse(document.getElementById("data").textContent);
distinguish(doc.scenes);
let views = new Map();

/// A scene, or one of its runs, is looked through when it is first shown.
function viewOf(number, run) {
  const key = `${number} ${run ?? ""}`;
  if (!views.has(key)) {
    const scene = run ? sceneOfRun(doc.scenes[number], run) : doc.scenes[number];
    const view = { scene, index: makeIndex(scene) };
    view.stateAt = statesOf(view);
    views.set(key, view);
  }
  return views.get(key);
}

const noPlan = () => ({ number: null, round: 0 });

// `runs`: by pane, the name of the run with a death that it shows; `notices`: by pane, a line about a death.
const beginning = () => ({ left: 0, right: doc.scenes.length > 1 ? 1 : null, runs: [null, null], notices: ["", ""], plans: [noPlan(), noPlan()], at: 0, process: 0, plays: false, predicts: false, quiz: { good: 0, all: 0, told: "" } });
const now = { ...beginning(), byPhase: true, speed: 10, problem: "" };
let panes = [];
let course = null;  // of the scenes that are shown; now.at is a stop of it
let controls = null;
let timer = 0;

const leader = () => viewOf(now.left, now.runs[0]);
const shownViews = () => numbersOfPanes().map((number, side) => viewOf(number, now.runs[side]));
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
  plan: () => panes[0].plan.toggle(),
  round: (way) => panes.forEach((pane) => pane.plan.round(way)),
  kill: () => kill(0, processShown(leader())),
  escape: () => {
    if (panes.map((pane) => pane.plan.close()).some(Boolean)) return;
    if (now.predicts) act.predict();
    else if (now.plays) toggle();
  },
  predict: () => {
    now.predicts = !now.predicts;
    now.quiz.told = "";
    if (now.predicts) now.at = stopBeforeQuestion() ?? now.at;
    stop();
    render("predict");
  },
};

/// Shows the recorded run in which a process of a pane dies, from its death on; again: the undisturbed run.
function kill(side, p) {
  const { scene } = shownViews()[side];
  const original = doc.scenes[numbersOfPanes()[side]];
  const { t } = contextOf(side);
  const run = runWithDeath(original, p);
  const isBack = now.runs[side] !== null && now.runs[side] === run;
  now.notices[side] = run || isBack ? "" : t.noDeath(processName(t, scene.processes[p].name));
  if (run) {
    now.plans[side] = noPlan();
    now.runs[side] = isBack ? null : run;
    now.start = { side, position: isBack ? Math.min(course.placesAt(now.at)[side], original.runs[run].events_in_common) : deathOf(original, run) };
  }
  stop();
  render(`kill-${side}-${p}`);
}

function open(file) {
  openFile(contextOf(0).t, file, (read) => {
    const before = { doc, views, course, now: { ...now } };
    now.problem = read.error ?? "";
    stop();
    try {
      if (read.doc) {
        doc = read.doc;
        distinguish(doc.scenes);
        views = new Map();
        course = null;
        Object.assign(now, beginning());
      }
      render("open");
    } catch {
      ({ doc, views, course } = before);
      Object.assign(now, before.now, { problem: contextOf(0).t.brokenScene(file.name) });
      render("open");
    }
  });
}

const contextOf = (pane) => ({ t: { en, zh }[languageNow()], language: languageNow(), pane });
const processShown = (view) => Math.min(now.process, view.scene.processes.length - 1);

function menu(id, label, value, options, onchange) {
  return h("label", { for: id }, `${label} `, h("select", { id, onchange: (event) => { onchange(event.target.value); render(id); } },
    options.map(([key, text]) => h("option", { value: key, selected: String(key) === String(value) }, text))));
}

/// Shows a scene on the left at a position.
function showAt(number, position) {
  now.left = number;
  forget(0);
  now.start = { side: 0, position };
  stop();
  course = null;
  render("slider");
  scrollTo(0, 0);
}

function forget(side) {
  now.runs[side] = null;
  now.notices[side] = "";
  now.plans[side] = noPlan();
}

function chooser(t) {
  const scenes = doc.scenes.map((scene, number) => [number, scene.label]);
  const longest = numbersOfPanes().map((one) => doc.scenes[one].processes).reduce((a, b) => (b.length > a.length ? b : a));
  return h("div", { class: "choose" },
    scenes.length > 1 ? menu("left", t.scene, now.left, scenes, (value) => { now.left = Number(value); forget(0); }) : null,
    scenes.length > 1 ? menu("right", t.beside, now.right ?? "", [["", t.none], ...scenes], (value) => { now.right = value === "" ? null : Number(value); forget(1); }) : null,
    now.right === null ? null : menu("align", t.align, now.byPhase ? "phase" : "time", [["phase", t.byPhase], ["time", t.byTime]], (value) => { now.byPhase = value === "phase"; }),
    menu("process", t.showMemory, now.process, longest.map((one, p) => [p, processName(t, one.name)]), (value) => { now.process = Number(value); }));
}

function header(t) {
  return h("header", {}, h("h1", {}, t.title), preferenceButtons(t, render,
    h("input", { type: "file", id: "file", accept: ".json,.html", hidden: true, onchange: (event) => event.target.files.length && open(event.target.files[0]) }),
    h("button", { type: "button", id: "open", title: t.openTitle, onclick: () => document.getElementById("file").click() }, t.open)));
}

function below(t) {
  const command = (Array.isArray(doc.command) ? doc.command : [doc.command]).join(" ");
  return [summary(contextOf(0), doc.scenes, showAt), h("details", { open: true }, h("summary", {}, t.legend), h("ul", {}, [t.legendBars, t.legendGradient, t.legendVersion, t.legendArrow, t.legendKill, t.keys].map((text) => h("li", {}, text)))),
    h("details", {}, h("summary", {}, t.command), h("pre", {}, command), h("p", { class: "quiet" }, doc.program))];
}

/// Makes the course of the scenes that are shown; the left one stays where it is.
function align() {
  const key = `${numbersOfPanes()} ${now.runs} ${now.byPhase}`;
  if (course?.key === key) return;
  const start = now.start ?? { side: 0, position: course?.left === now.left ? leaderAt() : 0 };
  course = { ...makeCourse(shownViews(), now.byPhase), key, left: now.left };
  now.at = course.first(start.side, start.position);
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
  const scale = scaleOf(shownViews().map((view) => [view, processShown(view)]), beside && !now.byPhase);
  panes = shown.map((number, k) => {
    const view = viewOf(number, now.runs[k]);
    const seek = (time) => act.go(course.first(k, positionAt(view.scene, time)));
    return makePane(contextOf(k), view, width, processShown(view), { seek, kill: (p) => kill(k, p), notice: now.notices[k], plan: now.plans[k], scale });
  });
  page.replaceChildren(header(t), ...(now.problem ? [h("p", { class: "bad", role: "alert", id: "problem" }, now.problem)] : []), chooser(t), h("div", { class: "bar" }, controls.node, h("div", { id: "question" })),
    h("div", { class: beside ? "panes two" : "panes" }, panes.map((one) => one.node)), ...below(t));
  document.title = `${t.title}: ${shown.map((one) => doc.scenes[one].label).join(", ")}`;
  show();
  scrollTo(0, place);
  if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
}

if (hash.has("at")) now.start = { side: 0, position: Math.max(0, Number(hash.get("at")) || 0) };
render();
listenToKeys(act, () => course.count);
listenToDrops(open);
onSystemTheme(() => render());
onResize(() => render());
