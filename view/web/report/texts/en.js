// The page's texts in English.

export const en = {
  title: "psring report", language: "中文", dark: "Dark", light: "Light", save: "Save as", all: "All strategies", show: "Show",
  strategy: "strategy", process: "process", step: "step", seconds: "seconds", worker: "worker", server: "server",
  table: "All figures as a table", run: "run", runsNote: (n) => `${n} runs of each row: the tables at the top show medians, the figures show run 1.`,
  nav: { ran: "What ran", owners: "Who owns what", loss: "Loss", time: "Time", timeline: "One step", bytes: "Bytes", memory: "Memory", sweeps: "Sweeps", asynchrony: "Asynchrony", recoveries: "Recoveries", next: "What to try", absent: "Not recorded" },

  ranTitle: "What ran", command: "command", version: "version", hosts: "hosts", processors: "processors", link: "link", seed: "seed",
  model: "model", data: "data", noLink: "not shaped", unfinished: "not finished", shared: "memory, or TCP as it is",
  others: "other programs", othersText: (n) => `took ${n} processors meanwhile`,
  glance: "At a glance", samples: "samples/s", tokens: "tokens/s", msStep: "ms/step", exposedMs: "exposed ms", workerPeak: "worker peak", serverPeak: "server peak",
  equal: "equal", accuracy: "accuracy", perplexity: "perplexity", finalLoss: "final loss", testLoss: "test loss", losses: "losses",
  badges: { "=": "the bits of single with as many virtual workers", "≈": "the same arithmetic in another order", inexact: "the result depends on timing, or on compression", "✗": "differs, and should not", "—": "not compared" },
  ownersTitle: "Who owns which range, and who sends what to whom",
  ownTitle: "Owned ranges of every unit",
  ownCaption: "A row is a process, a column is a unit of the model; in each cell, from top to bottom: parameters (P), gradients (G), optimizer state (OS). Solid: the range that the process keeps. Pale: the whole unit for a while, dropped after use. Empty: nothing.",
  kept: "kept", passing: "whole unit for a while", nothingKept: "not kept", elements: "elements", allUnits: "all units", more: (n) => `… ${n} more alike`,
  noOwnership: (list) => `Not drawn, because this program does not know how these strategies divide the units: ${list}`,
  flowsTitle: "Who sends what to whom", flowsCaption: "Measured payload of a step, without start-up, verdicts and evaluation; a wider arrow carries more bytes. Below each diagram: the sum over all pairs of processes.", aStep: "a step",

  lossTitle: "Loss and quality", lossNote: "Training loss: the mean over all workers' samples. Curves that are the same share a line, as dashes.",
  thinned: (n) => `Each point is the mean of up to ${n} steps.`,
  lossSteps: "Loss over steps", lossSeconds: "Loss over seconds", lossSecondsNote: "Seconds begin with the first step; evaluations count, start-up does not.",
  quality: (name) => `Test ${name} over steps`, qualitySeconds: (name) => `Test ${name} over seconds`, loss: "loss", keyboard: "Arrow keys move the cursor of a selected figure.",

  timeTitle: "A step's time",
  timeCaption: "Medians over all steps. The line is the median step, the whisker reaches from the 10th to the 90th percentile of steps; an arrow: beyond the edge. The diamond is the predicted exposed communication, after the time of computing.",
  timeFigure: "A step of each worker", computing: "not waiting", exposed: "exposed communication", predictedExposed: "predicted exposed", median: "median", p10: "p10", p90: "p90",
  stepMs: "step ms", busyMs: "computing ms",

  partsFigure: "What a worker does in a step", hidden: "hidden communication", inFlight: "communication in flight",
  partsCaption: "Medians over all traced steps. The line is the whole step; the rest of it is loading and bookkeeping. Second bar: the time in which a transfer was in flight; it is hidden while the worker computes.",
  kinds: { forward: "forward", backward: "backward", update: "update", wait: "waiting", serve: "server work", device: "GPU" },
  timelineTitle: "The timeline of one step", timelineFigure: (label, step, ms) => `${label}: step ${step}, ${ms} ms`, ms: "ms", zoom: "Zoom",
  timelineCaption: "The step with the median duration. First line of a process: what it computes, and where it waits. Below: transfers in flight. Arrows: frames from their departure to their arrival.",
  leftOut: (n) => `${n} events are left out.`,
  withinTitle: "Memory within the step, unit by unit", wholeParameters: "gathered parameters", wholeGradients: "unreduced gradients",
  withinCaption: "Bytes of whole units that the worker holds beside its own range. Background: forward and backward of each unit.",

  bytesTitle: "Bytes", bytesFigure: "Payload of the whole run", bytesCaption: "The diamond is the prediction of the formula. Start-up, flags and evaluation are counted apart.",
  direction: "direction", sent: "sent", received: "received", replicated: "replicated", measured: "measured", predicted: "predicted", difference: "difference",
  asPredicted: "as predicted", differs: "differs", notPredicted: "no prediction", servers: "servers",
  traffic: "Who sent how much to whom", trafficCaption: "Payload of the whole run with start-up and control; rows send, columns receive.", from: "from", to: "to", operation: "operation", payload: "payload", framing: "framing",

  formulasTitle: "The formula, with its numbers", formula: "formula of a step", withNumbers: "with numbers", bytesAStep: "bytes a step", steps: "steps", aWorker: "a worker",
  formulasNote: "n workers, A micro-batches, Mg and Mp bytes of all gradients and of all parameters with padding. A formula is shown where it gives the run's prediction to the byte.",

  memoryTitle: "Memory", memoryFigure: "Booked memory, peak of each category", memoryCaption: "The diamond is the sum of the predictions; activations, which have none, are added as measured. No diamond: another category has no prediction. Categories may peak at different moments.",
  category: "category", peak: "peak", rss: "RSS peak", pss: "Pss peak", pssTogether: (text) => `Pss of all processes together, at its peak: ${text}.`,
  systemNote: "RSS and Pss are the kernel's: with code, libraries and allocator. In Pss a page that n processes share counts 1/n in each.",
  memoryCurve: "Pss over time", bookedCurve: "Booked memory over time", system: "RSS and Pss of every process",
  categories: { parameters: "parameters", gradients: "gradients", optimizer: "optimizer state", activations: "activations", communication: "communication", staging: "staging" },

  sweepsTitle: "Sweeps", sweepTime: (option) => `Step time over ${option}`, sweepTimeCaption: "Median step of the slowest worker; the whisker reaches from the fastest to the slowest run.",
  sweepPredicted: "Dashed: computing plus the predicted exposed communication.", sweepLink: "Dotted: the time that the busiest link alone needs.", linkAlone: "link alone", least: "least ms", most: "most ms",
  options: { workers: "workers", servers: "servers", bucket_bytes: "bucket size", global_batch: "global batch", threads: "threads", accumulate: "micro-batches", link: "link rate" },
  sweepMemory: "Parameters, gradients and optimizer state of a worker", sweepMemoryCaption: "Points: measured. Line: the formula, what is whole plus what is divided by n. Dotted: its limit for many workers. Padding, which grows with n, is in the points only. The table says by how much less than one process that holds everything a worker then keeps.",
  limit: "limit", limitTitle: "less, for many workers", nTimes: "n ×",

  asynchronyTitle: "Asynchrony", stalenessFigure: "Staleness of gradients", stalenessCaption: "How many updates of other workers were applied between a worker's pull and the update with its gradient.",
  missedUpdates: "missed updates", updates: "updates", stalenessSteps: "Staleness over steps", meanStaleness: "mean staleness", mostStaleness: "largest", mostLag: "largest lag", dropped: "dropped",
  retransmitted: "Frames that were sent again", frames: "frames",

  recoveriesTitle: "Recoveries", recoveriesFigure: "Losses and recoveries over steps", recoveriesSeconds: "Losses and recoveries over seconds",
  recoveriesGap: "The band reaches from the last step before the loss whose result was kept to the first step after the recovery; the number is the delay until the job continued.",
  lost: "lost", continued: "continued with step", delay: "delay s", epoch: "epoch", workersLeft: "workers", givenUp: (list) => `workers given up: ${list}`, neverCame: "did not continue",

  nextTitle: "What bounds it, and what to try next", boundBy: "bound by", tryNext: "Try", notComparable: "Times are not comparable",
  compareNote: "This is what the run's own records show. A comparison also measures the processors, the memory and the servers:",
  bounds: {}, translate: (text) => text,
  absentTitle: "Not recorded", colon: ": ",
  absent: {
    quality: ["Quality over steps and seconds", "--eval-every K"],
    trace: ["Timeline of a step, hidden communication, memory within a step", "--trace on"],
    exposed: ["Predicted exposed communication", "--strategy ddp --link RATE,DELAY"],
    compare: ["Equality with other strategies, and all measurements of what bounds a step", "psring compare"],
    sweeps: ["Time and memory over an option", "psring compare --workers 2,4,8"],
    staleness: ["Staleness and lag", "--strategy ps-async, ps-ssp"],
    recoveries: ["Losses and recoveries", "--max-restarts N, --elastic"],
  },
  madeBy: "Written by", listSep: ", ",
};
