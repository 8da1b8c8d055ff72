// Figures of a scene that the table of all scenes compares: memory at the peak, bytes, gathers and waiting in a step; and the
// options in which two scenes differ.

import { baseOf } from "./cells.js";

export const sum = (list) => list.reduce((a, b) => a + b, 0);

/// Returns for which pass a process gathers a unit's parameters: "forward" or "backward", or "update" if the gather brings what
/// other workers have updated. `at` is the number of the event that starts the gather.
function passOf(scene, at) {
  const { p, units } = scene.events[at];
  if (baseOf(scene, p).parameters === "whole") return "update";
  const isUse = (e) => e.p === p && e.e === "begin" && (e.name === "forward" || e.name === "backward") && e.unit >= units[0] && e.unit < units[1];
  for (let i = at + 1; i < scene.events.length; ++i) if (isUse(scene.events[i])) return scene.events[i].name;
  return "forward";
}

/// Returns the gathers of the unit that process `p` gathers most often in a step, as a list of {at, pass}.
function gathersOf(scene, p) {
  const byKey = new Map();
  scene.events.forEach((e, i) => {
    if (e.p !== p || e.e !== "start" || e.name !== "all_gather" || !e.units) return;
    const key = `${e.step} ${e.units}`;
    byKey.set(key, [...(byKey.get(key) ?? []), i]);
  });
  const most = [...byKey.values()].reduce((a, b) => (b.length > a.length ? b : a), []);
  return most.map((at) => ({ at, pass: passOf(scene, at) }));
}

/// Returns the nanoseconds that a worker waits in a step, as the mean of all workers and steps. The wait for the last step's
/// parameters comes after the step's report, and counts; waits of the evaluation do not.
function waitsOf(scene) {
  const workers = scene.processes.map((_, p) => p).filter((p) => scene.processes[p].role === "worker");
  const reported = sum(scene.events.map((e) => (e.e === "report" ? e.exposed_ns : 0)));
  return (reported + sum(workers.map((p) => waitsAfter(scene, p)))) / workers.length / scene.steps;
}

function waitsAfter(scene, p) {
  const own = scene.events.filter((e) => e.p === p);
  const last = own.map((e) => e.e === "end" && e.name === "step").lastIndexOf(true);
  let depth = 0;
  let since = 0;
  let total = 0;
  for (const e of last < 0 ? [] : own.slice(last + 1)) {
    if (e.name === "barrier" || e.name === "evaluate" || e.e === "die" || e.e === "join") break;
    if (!["wait", "acquire", "acquire rows"].includes(e.name)) continue;
    if (e.e === "begin" && depth++ === 0) since = e.t;
    if (e.e === "end" && --depth === 0) total += e.t - since;
  }
  return total;
}

/// Returns a process's {peak, sends, gathers, waits}: bytes by category at its peak, bytes of the exchange in a step as the mean
/// of all processes of its role, the gathers of a unit in a step, and, of a worker, nanoseconds of waiting in a step.
export function figuresOf(scene, p) {
  let peak = [0, 0, 0, 0, 0];
  for (const e of scene.events) if (e.p === p && e.e === "memory" && sum(e.bytes) > sum(peak)) peak = e.bytes;
  const alike = scene.processes.filter((one) => one.role === scene.processes[p].role);
  return { peak, sends: sum(alike.map((one) => sum([one.sent].flat()))) / alike.length / scene.steps, gathers: gathersOf(scene, p),
    waits: scene.processes[p].role === "worker" ? waitsOf(scene) : null };
}

// Options that a strategy implies, that figures of one step do not depend on, or that name files.
const kNotCompared = new Set(["strategy", "servers", "placement", "consistency", "optimizer_on", "steps", "epochs", "seed", "shuffle", "recovery", "run_id", "resume", "other_data", "eval_every", "events", "trace",
  "live", "tensorboard", "out", "checkpoint_every", "checkpoint_dir", "checkpoint_keep", "max_restarts", "heartbeat_timeout", "join_timeout", "op_timeout"]);

const written = (value) => (value === true ? "on" : value === false ? "off" : `${value}`);
// Options that only one of two jobs knows are those of a newer psring.
const differing = (a = {}, b = {}) => Object.keys(a).filter((key) => key in b && JSON.stringify(a[key]) !== JSON.stringify(b[key]));
const nameOf = (key) => key.replaceAll("_", "-");
const option = (job, key) => `${nameOf(key)}=${written(job?.[key] ?? "")}`;

// What a mesh's label such as "tp:2+pp:2:1f1b" names.
const kInMesh = { tensor: "tp:", pipeline: "pp:", pipeline_schedule: "pp:" };

/// Returns whether a label such as "ddp bucket=1K" names the option "bucket_bytes"; "w" stands for workers.
function isInLabel(label, key) {
  if (key in kInMesh && label.split(/[ +]/).some((word) => word.startsWith(kInMesh[key]))) return true;
  const names = label.split(" ").filter((word) => word.includes("=")).map((word) => word.split("=")[0]);
  return names.some((name) => nameOf(key) === name || nameOf(key).startsWith(`${name}-`) || (name === "w" && key === "workers"));
}

/// Returns options such as "optimizer=sgd" of `scene` that differ from those of `first`, but for those in the labels with
/// which they were recorded, which the reader is meant to compare.
export function otherOptions(scene, first) {
  const keys = differing(scene.job, first.job).filter((key) => !kNotCompared.has(key) && ![scene, first].some((one) => isInLabel(one.recorded ?? one.label, key)));
  const found = keys.map((key) => option(scene.job, key));
  return scene.flops_per_second === first.flops_per_second ? found : [...found, `gflops=${scene.flops_per_second / 1e9}`];
}

/// Gives scenes that share a label labels of their own: the options in which they differ, such as "zero1 steps=2", or else a
/// number; `recorded` keeps the label of the file. Recorded scenes of several files may have the same strategy.
export function distinguish(scenes) {
  const labels = scenes.map((one) => one.label);
  scenes.forEach((scene, k) => {
    const same = scenes.filter((_, other) => labels[other] === labels[k]);
    if (same.length === 1) return;
    const keys = [...new Set(same.flatMap((other) => differing(scene.job, other.job)))];
    const texts = keys.map((key) => option(scene.job, key));
    const isAlone = same.every((other) => other === scene || keys.some((key) => option(other.job, key) !== option(scene.job, key)));
    scene.recorded = labels[k];
    scene.label = [labels[k], ...texts, ...(isAlone ? [] : [`#${same.indexOf(scene) + 1}`])].join(" ");
  });
}
