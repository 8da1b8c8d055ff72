// Phases of a scene, as the first worker goes through them, and the way from a position of one scene to the position of
// another. A position is a number of events that have happened.

/// Returns {at, t, step, phase, key} in order; `key` names the same phase in another scene. After a step's last backward
/// comes its update: the rest of the exchange, and the optimizer.
export function phasesOf(scene) {
  const marker = scene.processes.findIndex((one) => one.role === "worker");
  const lastBackward = new Map();
  let run = 0;
  const own = [];
  scene.events.forEach((e, i) => {
    if (e.p !== marker) return;
    if (e.e === "join") ++run;
    own.push({ e, i, run });
    if (e.e === "end" && e.name === "backward") lastBackward.set(`${run} ${e.step}`, i);
  });
  const phases = [{ at: 0, t: 0, step: 0, phase: "start" }];
  const enter = (at, t, step, phase) => phases.push({ at, t, step, phase });
  let now = "start";
  for (const { e, i, run: epoch } of own) {
    if (e.e === "begin" && e.name === "step") enter(i + 1, e.t, e.step, (now = "forward"));
    else if (e.e === "begin" && e.name === "backward" && now === "forward") enter(i + 1, e.t, e.step, (now = "backward"));
    else if (e.e === "begin" && e.name === "forward" && now === "backward") enter(i + 1, e.t, e.step, (now = "forward"));
    else if (e.e === "end" && e.name === "step") enter(i + 1, e.t, e.step, (now = "after"));
    if (lastBackward.get(`${epoch} ${e.step}`) === i) enter(i + 1, e.t, e.step, (now = "update"));
  }
  return keyed(phases.filter((one, k) => !(one.phase === "after" && phases[k + 1])));
}

function keyed(phases) {
  const count = new Map();
  return phases.map((one) => {
    const name = `${one.step} ${one.phase}`;
    count.set(name, (count.get(name) ?? 0) + 1);
    return { ...one, key: `${name} ${count.get(name)}` };
  });
}

/// Returns the number of the phase that contains the position.
export function phaseAt(phases, at) {
  let k = 0;
  while (k + 1 < phases.length && phases[k + 1].at <= at) ++k;
  return k;
}

/// Returns the number of events up to and including time `t`.
export function positionAt(scene, t) {
  let low = 0;
  let high = scene.events.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (scene.events[middle].t <= t) low = middle + 1;
    else high = middle;
  }
  return low;
}

const timeAt = (scene, at) => (at === 0 ? 0 : scene.events[at - 1].t);

/// Returns the position in `to` that corresponds to position `at` of `from`; by phase: the same part of the same phase.
export function aligned(from, to, at, byPhase) {
  if (at === 0) return 0;
  if (at === from.scene.events.length) return to.scene.events.length;
  const t = timeAt(from.scene, at);
  if (!byPhase) return positionAt(to.scene, t);
  const k = phaseAt(from.index.phases, at);
  const phase = from.index.phases[k];
  const other = to.index.phases.findIndex((one) => one.key === phase.key);
  if (other < 0) return positionAt(to.scene, (t / from.index.end) * to.index.end);
  const found = to.index.phases[other];
  if (at === phase.at) return found.at;
  const length = (from.index.phases[k + 1]?.t ?? from.index.end) - phase.t;
  const otherEnd = to.index.phases[other + 1];
  const otherLength = (otherEnd?.t ?? to.index.end) - found.t;
  const position = positionAt(to.scene, found.t + (length > 0 ? (t - phase.t) / length : 1) * otherLength);
  return Math.max(found.at, Math.min(position, (otherEnd?.at ?? to.scene.events.length + 1) - 1));
}
