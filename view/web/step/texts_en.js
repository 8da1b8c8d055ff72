const stage3 = "the strategy keeps only a part of each unit's parameters here";

function sends(f) {
  const late = f.queued ? ` The link is busy: the message leaves in ${f.queued} ms.` : "";
  const why = {
    all_gather: f.base.parameters === "whole" ? "each owner updated its range; now every worker needs the whole unit." : `every worker owns 1/${f.parts} of the unit, and a pass needs the unit whole.`,
    reduce_scatter: `gradients are added up, and each worker ends with the mean of the 1/${f.parts} that it owns.`,
    all_reduce: f.unit ? "every worker needs the same mean of all workers' gradients." : "the workers that divide a layer add up what each has computed, and wait for the sum.",
    message: !f.inMesh ? "the worker has compressed its gradient of this range, and sends it to the owner, who adds the gradients up." : "a stage sends an activation to the stage after it, or the activation's gradient to the stage before it, and goes on computing.",
    push: "the server owns the unit: it collects the gradients and applies the optimizer.",
    push_pull: "the server owns the unit: it collects the gradients, applies the optimizer, and answers with new parameters.",
    pull: "the worker asks the owner for parameters.",
    values: f.frame.exchange ? "the server has what this answer waits for, and returns the unit's new parameters." : "the worker asked for the current parameters.",
    rows_pull: "the worker needs the rows of its batch: it names each different key once, to the server that owns the key's bucket.",
    rows: f.frame.exchange ? "the server returns the rows that were asked for, in the order of the keys; keys do not come back." : "the worker asked for rows that it only reads.",
    rows_push: "the gradients of these rows go back in the order of the request, so that keys are not sent again. The server updates when all workers' gradients are here.",
    broadcast: "control: all workers receive the same values, or the same decision.",
    barrier: "control: nobody goes on before all are here.",
    layout: "control: before the first step, worker and server compare how the model is cut.",
  }[f.frame.name];
  return [`${f.who} sends ${f.operation}${f.unit ? ` ${f.unit}` : ""}, ${f.size}, to ${f.other}.`, (why ? `Why: ${why}` : "") + late];
}

function updates(f) {
  if (f.parts > 1) return `Only to the 1/${f.parts} that it owns: the other ${f.isServer ? "servers" : "workers"} update the rest at the same time.`;
  return f.isServer ? "The server owns the whole unit, and returns the new parameters to the workers." : "Every worker makes the same update, since all have the same mean gradient.";
}

function begins(f) {
  switch (f.e.name) {
    case "step": return [`${f.who} begins step ${f.e.step}.`, "A step: load samples, forward, backward, exchange gradients, update."];
    case "load": return [`${f.who} loads its share of the batch.`, "Each worker has samples of its own: that is what data parallel means."];
    case "acquire": return [`${f.who} asks for the parameters of ${f.unit}.`, f.base.parameters === "whole" ? "They are here already, unless an update is still arriving." : `Why: ${stage3}, so the unit must be gathered before it is used.`];
    case "acquire rows": return [`${f.who} needs the rows of its batch.`, "They were asked for when the samples were read; forward waits until the last of them is here."];
    case "forward": return [`${f.who} computes forward of layer ${f.e.layer} (${f.unit}).`, "Computing takes the layer's operations over --gflops; messages go on meanwhile."];
    case "backward": return [`${f.who} computes backward of layer ${f.e.layer} (${f.unit}).`, "Backward makes the unit's gradient, from the last layer to the first."];
    case "update": return [`${f.who} applies the optimizer${f.unit ? ` to ${f.unit}` : ""}.`, updates(f)];
    case "wait":
      if (f.lasts === 0) return [`${f.who} need not wait${f.other ? ` for ${f.other}` : ""}.`, "The result is here already: the communication was hidden behind computing."];
      return [`${f.who} waits${f.other ? ` for ${f.other}` : ""}${f.lasts ? `, ${(f.lasts / 1e6).toFixed(2)} ms` : ""}.`, "Exposed communication: the worker has nothing to compute until the message arrives."];
    case "wait for input": case "wait for gradient": case "wait for send":
      return [`${f.who} waits for ${f.operation} ${f.other}.`, "A stage has nothing to compute until the neighbouring stage's activation, or its gradient, is here."];
    case "evaluate": return [`${f.who} evaluates the model.`, "After the last step, on test data; its bytes do not count as exchange."];
    case "push_pull": case "push": return [`${f.who} adds the gradient of ${f.unit} from ${f.other}.`, "Under bsp the server updates when the last worker's gradient is here; under asp it updates at once."];
    default: return [`${f.who} begins ${f.operation}${f.unit ? ` of ${f.unit}` : ""}${f.other ? ` for ${f.other}` : ""}.`];
  }
}

function ends(f) {
  switch (f.e.name) {
    case "step": return [`${f.who} ends step ${f.e.step}.`];
    case "acquire": return [`${f.who} has the parameters of ${f.unit}${f.cell ? `, version ${f.cell.version}` : ""}.`, "The version is the number of updates that they contain."];
    case "acquire rows": return [`${f.who} has the rows of its batch.`];
    case "wait": case "wait for input": case "wait for gradient": case "wait for send": return [`${f.who} goes on${f.other ? `: ${f.other} has delivered` : ""}.`];
    case "update": return [`${f.who} has updated ${f.unit || "its ranges"}.`, f.base.parts > 1 && f.base.parameters === "whole" ? "Its other ranges still are the old version: the all-gather brings the new ones." : "The colour of the bars changes with the version."];
    case "push_pull": case "push": return [`${f.who} has added the gradient of ${f.unit} from ${f.other}${f.cell?.added ? ` (${f.cell.added} so far)` : ""}.`];
    default: return [`${f.who} ends ${f.operation}${f.e.layer === undefined ? "" : ` of layer ${f.e.layer}`}${f.unit ? ` (${f.unit})` : ""}.`];
  }
}

/// An all-gather of parameters: after an update of whole parameters, or before a pass of stage 3.
function gathers(f) {
  const { nth, of } = f.turn;
  const what = `${f.who} starts all-gather of ${f.unit}, ${f.size}${of > 1 ? `: number ${nth} of ${of} in this step` : ""}.`;
  if (f.base.parameters === "whole") return [what, "Each worker has updated only its own range; the others' new values come with this message."];
  if (of === 1) return [what, "A pass needs the unit whole. It stays until backward is through, so one gather is enough."];
  if (nth === 1) return [what, "Forward needs the unit whole. After forward it is dropped to save memory, so that backward has to gather it again."];
  return [what, "The unit was dropped after its last pass, and backward computes gradients with its parameters: this is why stage 3 gathers twice, and sends more bytes."];
}

function event(f) {
  switch (f.e.e) {
    case "send": return sends(f);
    case "arrive": return [`${f.operation}${f.unit ? ` ${f.unit}` : ""} of ${f.other} arrives at ${f.who}.`];
    case "begin": return begins(f);
    case "end": return ends(f);
    case "start": if (f.turn) return gathers(f);
      return [`${f.who} starts ${f.operation}${f.unit ? ` of ${f.unit}` : ""}${f.size ? `, ${f.size}` : ""}.`, "It runs in the background; the worker waits only when it needs the result."];
    case "finish": return [`${f.who} has finished ${f.operation}${f.unit ? ` of ${f.unit}` : ""}.`];
    case "hold": return f.e.values === "parameters" ? [`${f.who} makes room for all parameters of ${f.unit}, ${f.size}.`, `Why: ${stage3}; the rest is gathered for this pass and dropped after it.`] : [`${f.who} makes room for the whole gradient of ${f.unit}, ${f.size}.`, "Backward writes the whole gradient; after the reduction only the owned range stays."];
    case "drop": return f.e.values === "parameters" ? [`${f.who} drops the parameters of ${f.unit}, ${f.size}.`, f.turn?.nth < f.turn?.of ? "Forward is through with the unit; only the owned range stays, which saves memory. The price: backward has to gather the unit again." : "The last pass of this step is through with the unit; only the owned range stays. The next step gathers the updated parameters."] : [`${f.who} drops the whole gradient of ${f.unit}, ${f.size}.`, "The gradient is on its way to its owners, or has arrived there."];
    case "gradient": return f.e.state === "complete" ? [`The gradient of ${f.unit} is complete in ${f.who}.`, "The last layer of the unit is through backward: the exchange of the unit may begin."] : [`The gradient of ${f.unit} in ${f.who} is now the mean over all workers.`, "The optimizer may use it."];
    case "report": return [`${f.who} reports step ${f.e.step}: loss ${f.e.loss.toFixed(4)}, waited ${(f.e.exposed_ns / 1e6).toFixed(2)} ms.`];
    case "memory": return [`${f.who} now uses ${f.sizes} of memory.`];
    case "join": return [`${f.who} joins the job${f.e.duty === f.who ? "" : ` as ${f.e.duty}`}.`];
    case "die": return [`${f.who} dies.`, "Everything in its memory is lost. The coordinator tells the others, who continue or begin again."];
    case "return": return [`The process of ${f.who} runs again.`, "It has to receive the state from a survivor, or from a checkpoint."];
    default: return [f.e.e];
  }
}

/// Joins "a", "b" and "c" to "a, b and c".
const andList = (list) => (list.length > 1 ? `${list.slice(0, -1).join(", ")} and ${list[list.length - 1]}` : list.join(""));
const kKept = { parameters: "parameters", gradients: "gradients", optimizer: "optimizer state", activations: "activations", communication: "communication memory" };
const keptList = (list) => andList(list.map(([name, size]) => `${size} of ${kKept[name]}`));

/// One scene against the first: which memory it saves, in bytes, and what it pays for that.
function saves(f) {
  const gathersTwice = f.passes.join() === "forward,backward";
  const why = gathersTwice ? ": it gathers each unit before forward, drops it to save memory, and gathers it again before backward"
    : f.passes.length > 1 ? `: it gathers each unit ${f.passes.length} times in a step` : "";
  const peak = f.lower === "0 B" ? "is as high" : `is ${f.isLower && f.more.length ? "only " : ""}${f.lower} ${f.isLower ? "lower" : "higher"}`;
  return `${f.label}: ${[
    f.less.length ? `a worker keeps less than in ${f.base}: ${keptList(f.less)}` : "",
    f.more.length ? `at the peak it needs ${keptList(f.more)} more, so that the peak ${peak}` : f.less.length ? `the peak ${peak}` : "",
    f.factor === 1 ? `it sends as many bytes in a step, ${f.sends}` : `it sends ${f.factor} × the bytes in a step, ${f.sends} instead of ${f.sent}${f.factor > 1 ? why : ""}`,
    f.waits ? `it waits ${f.waits.now} in a step instead of ${f.waits.first}` : ""].filter(Boolean).join("; ")}.`;
}

export const en = {
  title: "psring step", language: "中文", dark: "Dark", light: "Light", listSep: ", ", worker: "worker", server: "server", servers: "servers",
  scene: "Scene", beside: "Beside it", none: "nothing", align: "Align by", byPhase: "phase", byTime: "time", showMemory: "Memory of",
  eventOf: (at, all) => `event ${at} of ${all}`, position: "Position", play: "Play", pause: "Pause", speed: "Events per second",
  back: { event: "Previous event", message: "Previous message", phase: "Previous phase", step: "Previous step" },
  forward: { event: "Next event", message: "Next message", phase: "Next phase", step: "Next step" },
  units: { event: "event", message: "message", phase: "phase", step: "step" },
  toStart: "Start", toEnd: "End", peak: "Peak memory", firstWait: "First exposed wait", timeKeys: "Time:", memoryKeys: "Memory:", predict: "Predict",
  atStart: "The scene has not begun.", atStartWhy: (n) => `${n} events follow. Press the right arrow key, or Play.`,
  phases: { start: "start", forward: "forward", backward: "backward", update: "update", after: "after" },
  phaseNow: (step, phase) => `step ${step}, ${phase}`,
  gridLabel: "Processes and units", timeLabel: "Time axis", step: "step", version: "version", process: "process", idle: "idle", between: "in the step",
  lives: { absent: "not running", dead: "dead", here: "" },
  extents: { whole: () => "whole", part: (n) => `1/${n}`, none: () => "none", batch: () => "rows of the batch" },
  looks: { empty: "not computed yet", computing: "being computed", complete: "own gradient complete", averaged: "mean of all workers" },
  pushes: (n) => `${n} in`,
  doing: (name, unit, peer, operation) => ({ forward: `forward ${unit}`, backward: `backward ${unit}`, update: `update ${unit}`, wait: peer ? `waits: ${peer}` : "waits", acquire: `needs ${unit}`, "acquire rows": "needs rows", load: "loads", evaluate: "evaluates" }[name] ?? `${operation} ${peer}`),
  operations: { all_reduce: "all-reduce", reduce_scatter: "reduce-scatter", all_gather: "all-gather", push: "push", push_pull: "push", pull: "pull request", values: "pulled parameters", rows_pull: "keys of", rows: "rows of", rows_push: "gradients of", layout_ok: "layout accepted", rows_ack: "receipt of", send: "send of a message", recv: "receipt of a message", "wait for input": "the input from", "wait for gradient": "the gradient from", "wait for send": "the sending to" },
  event, sourceLine: (one) => `${one.file}:${one.line} in ${one.function}`,
  inFlight: (n) => (n === 0 ? "No message is in flight." : n === 1 ? "1 message in flight:" : `${n} messages in flight:`), moreMessages: (n) => `… and ${n} more`,
  time: "Virtual time", bytesSoFar: "Bytes of the exchange so far, all processes", predictedTotal: "Predicted for all steps", notPredicted: "no prediction", reached: "reached exactly", more: (size) => `${size} more, from a repeated step`,
  memoryNow: "memory now", peakSoFar: "peak so far", sentSoFar: "sent so far", memoryOf: (name) => `Memory of ${name}`, milliseconds: "ms of virtual time",
  legend: "Legend", legendBars: "P parameters, G gradients, OS optimizer state. A full bar: the whole unit is in this process; a short bar: the part that it owns; a dash: nothing. A dashed outline is being filled. Of a table, a worker has the rows of its batch: a quarter of a bar without an outline.",
  legendGradient: "G is empty before backward, pale when the worker's own gradient is complete, and solid when it is the mean over all workers.",
  legendVersion: "Colour and v: the number of updates that the values contain.", legendArrow: "An arrow is a message in flight; the dot shows how far it is; dotted: it waits for the link.",
  kinds: { forward: "forward", backward: "backward", update: "update", other: "other work", wait: "waiting", transfer: "transfer" },
  categories: { parameters: "parameters", gradients: "gradients", optimizer: "optimizer state", activations: "activations", communication: "communication", index: "index of rows" },
  keys: "Keys: ← → event, Shift + ← → phase, Ctrl + ← → message, Space play and pause, Home and End, m peak memory, w first exposed wait, k kills the process whose memory is shown, c the plan of the last collective, [ and ] its rounds, Esc closes a plan or the quiz.",
  command: "How this scene was made", failed: "The job failed", predictedLine: "The dashed line is the prediction.",
  ask: "Who sends what to whom next?", sender: "sender", receiver: "receiver", message: "message", answer: "Answer", show: "Show it",
  right: "Right.", wrong: "Not so.", itIs: (label) => `The next message is ${label}.`, score: (good, all) => `${good} of ${all} right`,
  kill: (name) => `Kill ${name}`, revive: "Back to the undisturbed run", shownDeath: (name, step) => `In this run ${name} dies when it begins step ${step}.`,
  noDeath: (name) => `The scene has no run in which ${name} dies. Record the scene again with: psring step … --kills 1 --max-restarts 1`,
  legendKill: "A click on the name of a process kills it, and shows the recorded run with this death.",
  open: "Open…", openTitle: "Open a recorded scene; or drop its file on the page",
  notJson: (name) => `${name} is not a scene: it is not JSON. psring step --out FILE.json writes scenes.`,
  notScene: (name) => `${name} is not a scene: its format is not "psring-scene". psring step --out FILE.json writes scenes.`,
  newerScene: (name, version) => `${name} has version ${version} of the format; this page reads version 1. Open it with a page of a newer psring.`,
  brokenScene: (name) => `${name} is damaged: its scenes lack processes, units or events. Record the scene again.`,
  unreadable: (name) => `The browser cannot read ${name}. Check that the file exists and may be read.`,
  openPlan: (what) => `Open the plan of ${what}`, close: "Close", closePlan: "Close the plan", planLabel: "Ranks and chunks", chunk: (c) => `chunk ${c}`, colon: ": ",
  planOf: (what, how, n, elements, type) => `${what} by ${how}: ${n} ranks, ${elements} elements ${type}`,
  round: "round", roundBack: "Previous round", roundNext: "Next round", roundOf: (at, all) => `After round ${at} of ${all}:`,
  beforeRounds: (all) => `Before the first of ${all} ${all === 1 ? "round" : "rounds"}.`, division: (n) => `The sum over all ranks is divided by ${n}: the mean.`,
  keeps: (sent, sum) => (sum === null ? `keeps ${sent}` : `the last of all ranks' values comes, ${sent}; their sum in rank order is ${sum}`),
  equalsRecorded: "All values equal the recorded ones.", differs: "Values differ from the recorded ones.",
  sampleLegend: "A number is the first element of the chunk. Below it stand the ranks whose values it contains; a dash: undefined in this rank.",
  noSamples: "Sample values are recorded only in the first step. The ranks in a chunk are those whose values it contains.",
  algorithms: { ring: "ring", halving_doubling: "halving and doubling", doubling: "doubling", exchange: "direct exchange", star: "star", tree: "tree", chain: "chain" },
  algorithmSays: {
    ring: "Each rank sends one chunk to the next rank in every round. All links are busy all the time, and the number of rounds grows with the number of ranks.",
    halving_doubling: "Partners exchange half of what they still sum, then the distance doubles; the way back gathers. There are few rounds: the logarithm of the number of ranks, twice.",
    doubling: "The distance between partners doubles in each round, and with it what each rank has.",
    exchange: "Each rank sends what another one needs straight to it, in one round. Where values are added up, their receiver adds them in rank order.",
    star: "All ranks send to one rank, which answers all.", tree: "Each rank that has the values passes them on to a rank that has not: the number of ranks that have them doubles.",
    chain: "Each rank passes the values on to the next.",
  },
  allScenes: "All scenes: memory, bytes and waiting", peakSum: "peak", sendsInStep: "sent in a step", gathersInStep: "gathers of a unit, by phase", waitsInStep: "waits in a step",
  sentenceSep: " ", goToGather: (label, nth, of) => `Show gather ${nth} of ${of} in a step of ${label}`,
  saves,
  summaryLegend: "Memory is that of the first worker, or server, when it has the most. Bytes are the mean of all workers, or servers. Waits are exposed communication, the mean of all workers, and count the wait for a step's new parameters. Communication memory holds whole units on their way, such as gradients of stage 2 and parameters of stage 3; with more units, each unit is a smaller part of the model. All bytes count padding: a tensor takes a multiple of 256 elements, and a unit is padded so that its owners have equal parts. A server keeps its part of the parameters twice, as the version that workers still pull and the one that it updates; it keeps the gradients' mean only where the update has to wait for all of it, such as with clipping.",
  summaryCompared: (labels) => `Compared with ${labels.length > 1 ? "the first scene with the same options, " : ""}${labels.join(", or ")}: ↓ and green: less; ↑ and amber: more.`,
  repeats: (label) => `${label}: it is not compared with other scenes, because a process dies and steps are repeated.`,
  notCompared: (label, base, others) => `${label}: it is not compared with ${base}, because its options differ: ${others.join(", ")}.`,
};
