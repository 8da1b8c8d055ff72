// The page's texts in English.

export const en = {
  title: "psring live", language: "中文", dark: "Dark", light: "Light", save: "Save as",
  nav: { curves: "Curves", workers: "Workers", servers: "Servers", links: "Links", staleness: "Asynchrony", recoveries: "Recoveries" },
  units: { s: "s", min: "min", h: "h", d: "d" }, ms: "ms", stop: ".", listSep: "; ",
  worker: "worker", server: "server", servers: "servers", step: "step", seconds: "seconds", loss: "loss",

  phases: { starting: "starting", training: "training", recovering: "recovering from a loss", done: "done", failed: "failed" },
  connection: {
    connecting: () => "Connecting …",
    open: () => "Connected: a new state comes every second.",
    ended: () => "The run has ended.",
    lost: (at) => at ? `Connection lost, retrying. The last state came at ${at}.` : "No connection, retrying.",
    crowded: (at) => `The server has as many viewers as it takes. This page asks for the state every few seconds; the last one came at ${at}.`,
    refused: () => "The server refuses the token. Open the address that psring printed; a new run has a new one.",
    unreadable: () => "The server sends a state that this page cannot read. Load the page again.",
  },
  workersCount: (n) => `${n} ${n === 1 ? "worker" : "workers"}`, serversCount: (n) => `${n} ${n === 1 ? "server" : "servers"}`, batchOf: (n) => `global batch ${n}`,
  command: "Command", progress: "Progress", ofSteps: (step, steps) => `${step} of ${steps}`,
  samples: "samples/s", tokens: "tokens/s", left: "time left", elapsed: "trained for",

  curvesTitle: "Loss and speed", overSteps: "Over steps", overSeconds: "Over seconds", keyboard: "Arrow keys move the cursor of a selected figure.",
  figures: { loss: "Loss", quality: "Quality on the test set", speed: "Samples a second, all workers", "step-time": "Time of a step, mean over workers" },
  withoutFirst: "Without the first step, which starts everything up; the CSV file has it.",
  trainingLoss: "training", testLoss: "test", test_accuracy: "test accuracy", test_perplexity: "test perplexity", test: (name) => `test ${name}`, stepTime: "whole step", exposed: "exposed communication",

  workersTitle: "Workers", lag: "lag", lastStep: "last step", waits: "waits for", memory: "memory", sent: "sent", received: "received", seen: "seen", staleness: "staleness",
  place: "place", copy: "copy", stage: "stage", tensorRank: "tensor rank", comma: ", ", bubble: "bubble", bubbleKey: "bubble: the stage waits for other stages",
  compute: "compute", rest: "other", order: "Order:", orders: { rank: "by rank", lag: "by lag", step_s: "by step time" },
  workersCaption: "Lag: how many steps a worker is ahead of the slowest one. Memory: booked bytes of parameters, gradients, optimizer state, activations and communication. A bar is relative to the longest of its column.",
  nobodyWaits: "No worker waits now.", waitingNow: (n, all) => `${n} of ${all} workers ${n === 1 ? "waits" : "wait"} now`, mostFor: (n, whom) => `, ${n} of them for ${whom}`,
  waitsFor: (whom, operation, since) => `${[whom, operation].filter(Boolean).join(": ")}, for ${since}`,
  operations: { wait: "collective", acquire: "parameters", "acquire rows": "rows", "wait for input": "input", "wait for gradient": "gradient", "wait for send": "send", "sum of shared tensors": "shared tensors" }, ago: (text) => `${text} ago`,
  categories: { parameters: "parameters", gradients: "gradients", optimizer: "optimizer state", activations: "activations", communication: "communication", index: "index of rows" },

  serversTitle: "Servers", busy: "load", updates: "updates", rows: "rows", serversCaption: "Load: the part of the last second in which the server worked on frames.",

  linksTitle: "Links", linksFigure: "Who sends to whom now, bytes a second", linksCaption: "Rows send, columns receive; w is a worker, s a server. A darker cell carries more.",
  from: "from", to: "to", operation: "operation", rate: "rate", payload: "so far", retransmissions: "sent again", busiest: (n) => `The ${n} busiest links`,
  resent: (n) => `${n} frames were sent again.`, notResent: "Frames are not confirmed in this run, so none is sent again.",

  stalenessTitle: "Asynchrony", stalenessFigure: "Staleness of gradients, mean over workers", missed: "missed updates",
  stalenessCaption: "How many updates of other workers were applied between a worker's pull and the update with its gradient.",

  recoveriesTitle: "Losses and recoveries", recoveriesFigure: "Losses over seconds of training", recoveriesCaption: "A cross is a loss; the band after it is the time until the job continued.",
  at: "at", lost: "what was lost", continued: "continued with step", delay: "delay s", notYet: "not yet",

  absentTitle: "Not recorded by this run: ",
  absent: { live: "who waits for whom, server load, links", evaluations: "quality (--eval-every K)" },
};
