// The runs of a scene in which one process is killed: recorded with `psring step --kills STEP`.

/// Returns the name of the run in which process `p` dies; null: none is recorded.
export const runWithDeath = (scene, p) => Object.entries(scene.runs ?? {}).find(([, run]) => run.process === p)?.[0] ?? null;

/// Returns the scene with the events of one of its runs.
export function sceneOfRun(scene, name) {
  const run = scene.runs[name];
  return { ...scene, run: name, error: run.error, duration_ns: run.duration_ns, model_sha256: run.model_sha256,
    processes: scene.processes.map((one, p) => ({ ...one, sent: run.sent?.[p] ?? one.sent })),
    events: scene.events.slice(0, run.events_in_common).concat(run.events) };
}

/// Returns the position after the death that the run is about.
export function deathOf(scene, name) {
  const run = scene.runs[name];
  const at = run.events.findIndex((e) => e.e === "die" && e.p === run.process);
  return run.events_in_common + at + 1;
}
