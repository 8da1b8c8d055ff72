// The page's texts in English.

export const en = {
  title: "psring plan", language: "中文", dark: "Dark", light: "Light", save: "Save as", colon: ": ", listSep: ", ", madeBy: "Written by",
  nav: { cluster: "The cluster", curves: "Curves", rows: "Rows", memory: "Memory", start: "Start it" },

  clusterTitle: "The cluster and the job", command: "command", model: "model", workers: "workers",
  meshText: (mesh) => `${mesh.workers}, ${mesh.workers_per_host} on each of ${mesh.hosts} ${mesh.hosts === 1 ? "host" : "hosts"}${mesh.one_machine ? ", which share one machine's processors" : ""}`,
  within: "link within a host", between: "network card of a host", limit: "memory limit of a process", best: "first row", why: "why",
  linkText: (rate, delay) => (delay ? `${rate}, ${delay} one way` : rate),
  leftOut: "Left out", planned: "as planned", show: "Show",

  curvesTitle: (option) => `Curves over ${option}`,
  curvesNote: "A curve is a strategy with a rule for its servers, or shard groups within hosts (hybrid sharding: group=host). Buckets, prefetch and micro-batches are the best ones at each point. Rings mark where two of the shown curves cross. Press a name to show or hide its curve.",
  options: {
    hosts: "hosts", "workers-per-host": "workers per host", "link-within": "link within a host", "link-between": "link between hosts", tflops: "TFLOP/s of a worker", memory: "memory limit",
    model: "model", servers: "servers", "global-batch": "global batch", "batch-size": "batch of a worker", accumulate: "micro-batches", bucket: "bucket", prefetch: "prefetch",
    "shard-group": "shard group", compress: "compression", precision: "precision", optimizer: "optimizer", units: "units",
  },
  stepFigure: "Time of a step", stepAxis: "ms/step", stepCaption: "Logarithmic. One server is a bottleneck whose time grows with the workers; s servers divide it; a ring's bytes less than double, and each step round it adds a delay.",
  rateFigure: (unit) => `${unit} per second and host`, rateCaption: "Rows are ranked by this: a standalone server needs a host and a card of its own, so it counts as a host.", samples: "Samples", tokens: "Tokens",
  exposedFigure: "Exposed share of a step", exposedAxis: "% of the step", exposedCaption: "The share of a step in which a worker waits for communication.",
  memoryFigure: "Memory of the fullest process", memoryCaption: "What the strategy books, as it predicts itself. Dashed: the limit.", memoryAxis: "", limitName: "limit",
  crossingsTitle: "Crossings of the shown curves", crossingsNone: "The shown curves do not cross.",
  figureColumn: "figure", between2: "between", before: "better before", after: "better after", at: "at about", moreCurves: (n) => `${n} more curves`,

  rowsTitle: "Rows", rowsFigure: "A step of each row", rowsCaption: "Best first: by samples per second and host; rows that do not fit into memory come last.",
  computing: "computing", exposed: "exposed communication", bubble: "stages waiting for each other", more: (n) => `${n} more rows`,
  ofUnit: (unit, title) => `${unit.toLowerCase()} ${title}`,
  columns: { label: "strategy", hosts: "hosts", step_s: "step ms", compute_s: "computing ms", exposed_s: "exposed ms", bubble: "bubble", rate: "per s", per_host: "per s, host", sent_bytes: "card sends", process_bytes: "memory", bound: "bound by" },
  hostsNote: "Hosts: those of workers and of standalone servers, each with one network card. A card sends this much in a step, in one direction. Press a strategy to see its command.",
  inexact: "inexact", inexactNote: "compression or precision change what is computed", tooLarge: "does not fit",
  bounds: { compute: "computing", "worker link": "a worker's card", "server link": "a server's card", server: "the server's work", "link within host": "the link within a host", latency: "latency", bubble: "stages that wait", processors: "the hosts' processors" },

  memoryTitle: "Memory of each row", memoryRowsFigure: "The fullest process of each row", memoryRowsCaption: "Vertical line: the limit.", worker: "worker", server: "server",
  categories: { parameters: "parameters", gradients: "gradients", optimizer: "optimizer state", activations: "activations", communication: "communication", index: "index of rows", staging: "staging" },

  startTitle: "Start it", startNote: (row) => `The options of ${row}, as psring plan --out writes them for psring train --config.`, file: "as a file for --config", hostsStart: (n) => `On ${n} hosts: with --nodes and agents, within sbatch of Slurm, or on Kubernetes.`,
};
