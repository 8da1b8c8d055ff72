// Phases of a scene, as the first worker goes through them. A position is a number of events that have happened.

/// Returns {at, t, step, phase, key} in order; `key` names the same phase in another scene. Forward and backward begin when
/// the worker asks for the parameters of their first unit: a gather belongs to the pass that needs it. After a step's last
/// backward comes its update: the rest of the exchange, and the optimizer.
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
  let asked = null;  // the acquire since the last pass of a layer
  const enterPass = (e, i, phase) => enter((asked?.i ?? i) + 1, (asked?.e ?? e).t, e.step, (now = phase));
  for (const { e, i, run: epoch } of own) {
    if (e.e === "begin" && e.name === "acquire") asked ??= { e, i };
    if (e.e === "begin" && e.name === "step") enter(i + 1, e.t, e.step, (now = "forward"));
    else if (e.e === "begin" && e.name === "backward" && now === "forward") enterPass(e, i, "backward");
    else if (e.e === "begin" && e.name === "forward" && now === "backward") enterPass(e, i, "forward");
    else if (e.e === "end" && e.name === "step") enter(i + 1, e.t, e.step, (now = "after"));
    if (e.e === "end" && (e.name === "forward" || e.name === "backward")) asked = null;
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
