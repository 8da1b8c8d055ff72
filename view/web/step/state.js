// The state of a scene at a position: a pure function of the scene and the number of events that have happened.

import { baseOf, onAdd, onBackward, onDrop, onFinish, onGradient, onHold, onJoin, onRows, onServerSend, onStep, onUpdate, onValues, tableBaseOf } from "./cells.js";

const kEvery = 256;  // events from one snapshot to the next

function firstState(scene) {
  return {
    t: 0,
    bytes: 0,
    flying: [],
    processes: scene.processes.map((one) => ({ duty: one.name, life: "absent", step: 0, doing: [], moving: [], memory: [0, 0, 0, 0, 0], peak: 0, sent: 0, loss: null })),
    // null: the process's stage does not have the unit
    cells: scene.processes.map((one) => scene.units.map(({ table }, u) => (one.units && !one.units.includes(u) ? null
      : { table: table ?? false, parameters: "base", version: 0, gradient: "empty", held: false, updates: 0, pushes: 0, added: 0, from: {} }))),
  };
}

const keyOf = (e) => `${e.name} ${e.units ?? e.unit ?? ""} ${e.layer ?? ""}`;

function begin(list, e) {
  list.push({ key: keyOf(e), name: e.name, unit: e.unit ?? null, units: e.units ?? null, layer: e.layer ?? null, peer: e.peer ?? null, since: e.t });
}
function end(list, e) {
  const at = list.map((one) => one.key).lastIndexOf(keyOf(e));
  if (at >= 0) list.splice(at, 1);
}

function applyActivity(view, state, e) {
  const process = state.processes[e.p];
  if (e.e === "begin") {
    begin(process.doing, e);
    if (e.name === "step") {
      process.step = e.step;
      onStep(view, state, e);
    }
    if (e.name === "backward") onBackward(state, e);
    if (e.name === "push" || e.name === "push_pull") onAdd(state, e);
  } else {
    end(process.doing, e);
    if (e.name === "update") onUpdate(view, state, e);
    if (process.life === "here") return;
    process.doing = [];
  }
}

function applyFrame(view, state, e) {
  const frame = view.index.frames[e.frame];
  if (e.e === "send") {
    state.flying.push(e.frame);
    if (e.exchange) {
      state.bytes += e.bytes;
      state.processes[e.p].sent += e.bytes;
    }
    if (e.name === "values" || e.name === "rows") onServerSend(state, frame);
    if (e.name === "rows_pull") state.cells[e.p][frame.units[0]].parameters = "arriving";
  } else {
    state.flying = state.flying.filter((number) => number !== e.frame);
    if (frame?.name === "values") onValues(view, state, frame);
    if (frame?.name === "rows") onRows(state, frame);
    if (frame && (frame.name === "push" || frame.name === "push_pull" || frame.name === "rows_push")) ++state.cells[e.p][frame.units[0]].pushes;
  }
}

function applyLife(view, state, e) {
  const process = state.processes[e.p];
  if (e.e === "die") {
    Object.assign(process, { life: "dead", doing: [], moving: [] });
    state.flying = state.flying.filter((number) => view.index.frames[number].arrived !== null);
  } else if (e.e === "return") {
    process.life = "absent";
  } else {
    Object.assign(process, { life: "here", duty: e.duty, doing: [], moving: [] });
    onJoin(state, e);
  }
}

function apply(view, state, e) {
  state.t = e.t;
  const process = state.processes[e.p];
  switch (e.e) {
    case "begin":
    case "end":
      return applyActivity(view, state, e);
    case "start":
      return begin(process.moving, e);
    case "finish":
      end(process.moving, e);
      return onFinish(view, state, e);
    case "send":
    case "arrive":
      return applyFrame(view, state, e);
    case "hold":
      return onHold(state, e);
    case "drop":
      return onDrop(state, e);
    case "gradient":
      return onGradient(state, e);
    case "report":
      process.loss = e.loss;
      return undefined;
    case "memory":
      process.memory = e.bytes;
      process.peak = Math.max(process.peak, e.bytes.reduce((a, b) => a + b, 0));
      return undefined;
    case "die":
    case "return":
    case "join":
      return applyLife(view, state, e);
    default:
      return undefined;  // an event of a later version
  }
}

/// Returns a function from a position to the state there, which is valid until the next call. `view` is {scene, index}.
export function statesOf(view) {
  const { scene } = view;
  view.bases = scene.processes.map((_, p) => baseOf(scene, p));
  view.tableBases = scene.processes.map((_, p) => tableBaseOf(scene, p));
  const state = firstState(scene);
  const snapshots = [structuredClone(state)];
  scene.events.forEach((e, i) => {
    apply(view, state, e);
    if ((i + 1) % kEvery === 0) snapshots.push(structuredClone(state));
  });
  // The last state goes on if the reader steps forward; another place begins from the snapshot before it.
  let last = { at: 0, state: structuredClone(snapshots[0]) };
  return (at) => {
    const from = Math.floor(at / kEvery) * kEvery;
    if (at < last.at || last.at < from) last = { at: from, state: structuredClone(snapshots[from / kEvery]) };
    for (; last.at < at; ++last.at) apply(view, last.state, scene.events[last.at]);
    return last.state;
  };
}
