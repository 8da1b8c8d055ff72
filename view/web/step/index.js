// Looks through a scene once: pairs the frames, names their units, finds the phases, and cuts time into intervals.

import { collectivesOf } from "./collectives.js";
import { phasesOf } from "./phases.js";

const kPushes = new Set(["push", "push_pull", "pull"]);
const kMostVersion = 2 ** 53;  // above: the answer to a request for the newest version, without a number

/// Returns the frames by number: {from, to, name, units, bytes, exchange, sent, arrived, departs, arrives}; `sent` and
/// `arrived` are numbers of events, `arrived` null if the frame was lost.
function framesOf(scene) {
  const frames = [];
  const starts = scene.processes.map(() => []);
  const taken = scene.processes.map(() => new Map());
  const named = scene.processes.map(() => new Map());  // starts that say their group and call
  const used = scene.processes.map(() => new Set());
  const newest = scene.processes.map(() => new Map());  // by unit: the version that a server last sent
  const manyGroups = scene.events.some((e) => e.e === "send" && e.group > 0);
  // A ring frame belongs to the call-th collective that its sender started in the group.
  const collective = (e) => {
    const exact = named[e.p].get(`${e.group} ${e.call}`);
    if (exact) return exact;
    if (!manyGroups) return starts[e.p][e.call];
    const key = `${e.group} ${e.call}`;
    const known = taken[e.p].get(key);
    if (known) return known;
    const found = starts[e.p].find((start) => start.name === e.name && !used[e.p].has(start));
    if (found) {
      taken[e.p].set(key, found);
      used[e.p].add(found);
    }
    return found;
  };
  scene.events.forEach((e, i) => {
    if (e.e === "join") {
      starts[e.p] = [];
      taken[e.p].clear();
      named[e.p].clear();
      used[e.p].clear();
    } else if (e.e === "start" && !kPushes.has(e.name)) {
      starts[e.p].push(e);
      if (e.call !== undefined) named[e.p].set(`${e.group} ${e.call}`, e);
    } else if (e.e === "send") {
      const isRing = e.call !== undefined;
      const start = isRing ? collective(e) : null;
      const units = isRing ? (start?.units ?? null) : e.name.startsWith("layout") ? null : [e.unit, e.unit + 1];
      const version = e.version < kMostVersion ? e.version : (newest[e.p].get(e.unit) ?? 0);
      if (e.name === "values") newest[e.p].set(e.unit, version);
      frames[e.frame] = { number: e.frame, from: e.p, to: e.to, name: e.name, units, bytes: e.bytes, exchange: e.exchange,
        version, sent: i, arrived: null, departs: e.departs, sends: e.t, arrives: null };
    } else if (e.e === "arrive" && frames[e.frame]) {
      frames[e.frame].arrived = i;
      frames[e.frame].arrives = e.t;
    }
  });
  return frames;
}

const kComputing = new Set(["forward", "backward", "update", "push", "push_pull", "pull", "evaluate"]);
const kWaiting = new Set(["wait", "acquire", "acquire rows"]);

/// Returns for each process its times of computing, waiting and transfers: {kind, from, to, first}; `first` is the number
/// of the event that begins the interval.
function intervalsOf(scene, end) {
  const lists = scene.processes.map(() => []);
  const opens = scene.processes.map(() => []);
  const close = (p, one, to) => one.kind && to > one.from && lists[p].push({ ...one, to });
  scene.events.forEach((e, i) => {
    const open = opens[e.p];
    const isTransfer = e.e === "start" || e.e === "finish";
    if (e.e === "begin" || e.e === "start") {
      open.push({ key: keyOf(e), kind: isTransfer ? "transfer" : kindOf(e.name), name: e.name, from: e.t, first: i });
    } else if (e.e === "end" || e.e === "finish") {
      const key = keyOf(e);
      const at = open.findIndex((one) => one.key === key && (one.kind === "transfer") === isTransfer);
      if (at >= 0) close(e.p, open.splice(at, 1)[0], e.t);
    } else if (e.e === "die") {
      for (const one of open.splice(0)) close(e.p, one, e.t);
    }
  });
  opens.forEach((open, p) => open.forEach((one) => close(p, one, end)));
  return lists;
}
const keyOf = (e) => `${e.name} ${e.units ?? e.unit ?? ""} ${e.layer ?? ""}`;
const kindOf = (name) => (kComputing.has(name) ? name : kWaiting.has(name) ? "wait" : null);

/// Returns for each process its booked memory as a list of {t, at, bytes}.
function memoryOf(scene) {
  const curves = scene.processes.map(() => [{ t: 0, at: 0, bytes: [0, 0, 0, 0, 0] }]);
  scene.events.forEach((e, i) => {
    if (e.e === "memory") curves[e.p].push({ t: e.t, at: i + 1, bytes: e.bytes });
  });
  return curves;
}

/// Returns the bytes of the exchange that all processes sent together, as a list of {t, sum}.
function bytesOf(scene) {
  let sum = 0;
  const curve = [{ t: 0, sum: 0 }];
  for (const e of scene.events) if (e.e === "send" && e.exchange) curve.push({ t: e.t, sum: (sum += e.bytes) });
  return curve;
}

/// Returns the predicted bytes of the whole scene, over all processes; null: no prediction.
function predictedBytes(scene) {
  const workers = scene.processes.filter((one) => one.predicted);
  if (workers.length === 0 || workers.some((one) => one.predicted.worker_sends === undefined)) return null;
  const sends = workers.reduce((sum, one) => sum + scene.steps * one.predicted.worker_sends + (one.predicted.worker_sends_of_run ?? 0), 0);
  const { servers_send = 0, servers_replicate = 0, servers_send_of_run = 0 } = workers[0].predicted;
  return sends + scene.steps * (servers_send + servers_replicate) + servers_send_of_run;
}

/// Returns the number of the event that begins the first wait of a worker that takes time; null: nobody waits.
function firstWait(intervals, scene) {
  const waits = intervals.flatMap((list, p) => (scene.processes[p].role === "worker" ? list.filter((one) => one.kind === "wait") : []));
  return waits.length ? Math.min(...waits.map((one) => one.first)) : null;
}

/// Returns how long waits last, in nanoseconds, by number of the event that begins the wait.
function lastsOf(scene) {
  const opens = scene.processes.map(() => []);
  const lasts = new Map();
  scene.events.forEach((e, i) => {
    if (e.e === "die") opens[e.p] = [];
    if (e.name !== "wait") return;
    if (e.e === "begin") opens[e.p].push(i);
    else if (e.e === "end" && opens[e.p].length) {
      const first = opens[e.p].pop();
      lasts.set(first, e.t - scene.events[first].t);
    }
  });
  return lasts;
}

/// Returns for all-gathers and drops of parameters, by number of the event, {nth, of}: which of the unit's gathers, or drops, of
/// the process in the step it is.
function turnsOf(scene) {
  const byKey = new Map();
  scene.events.forEach((e, i) => {
    const isGather = e.e === "start" && e.name === "all_gather";
    if (!isGather && (e.e !== "drop" || e.values !== "parameters")) return;
    const key = `${e.e} ${e.p} ${e.step} ${e.units ?? e.unit}`;
    if (!byKey.has(key)) byKey.set(key, []);
    byKey.get(key).push(i);
  });
  const turns = new Map();
  for (const list of byKey.values()) list.forEach((i, k) => turns.set(i, { nth: k + 1, of: list.length }));
  return turns;
}

export function makeIndex(scene) {
  const end = scene.events.length ? scene.events[scene.events.length - 1].t : 0;
  const intervals = intervalsOf(scene, end);
  return {
    end, intervals,
    frames: framesOf(scene),
    memory: memoryOf(scene),
    bytes: bytesOf(scene),
    predicted: predictedBytes(scene),
    firstWait: firstWait(intervals, scene),
    phases: phasesOf(scene),
    turns: turnsOf(scene),
    lasts: lastsOf(scene),
    collectives: collectivesOf(scene),
  };
}

/// Returns the position after which the process has the most memory booked.
export function peakOf(index, process) {
  let best = index.memory[process][0];
  const sum = (one) => one.bytes.reduce((a, b) => a + b, 0);
  for (const one of index.memory[process]) if (sum(one) > sum(best)) best = one;
  return best.at;
}
