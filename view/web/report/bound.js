// What bounds a run that was made by itself. psring compare measures more, and its own result is shown where it exists: the
// processors' number, the memory's rate and a server's work are not recorded in the folder of a run.

const kStraggler = 1.5;  // a straggler computes at least this many times as long as the others
const kDelayed = 0.1;  // share of time without a processor that makes processors the bound

const median = (list) => {
  const sorted = [...list].sort((a, b) => a - b);
  return sorted.length ? (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2 : 0;
};
const ms = (seconds) => (seconds * 1e3).toFixed(seconds < 0.01 ? 2 : 1);

/// Returns the bytes a second of a link such as 1gbit,0.2ms; null if it is not of one rate.
export function linkRate(link) {
  const found = /^([\d.]+)([kmg])bit(,[^,]*)?$/.exec(link ?? "");
  return found ? (Number(found[1]) * { k: 1e3, m: 1e6, g: 1e9 }[found[2]]) / 8 : null;
}

function figures({ summary, workers, manifest }) {
  const own = workers.filter((worker) => worker.step_s && worker.busy_step_s && worker.exposed_step_s);
  if (own.length === 0 || !summary.step_s) return null;
  const slowest = own.reduce((a, b) => (b.busy_step_s.median > a.busy_step_s.median ? b : a));
  const others = own.filter((worker) => worker !== slowest);
  const rate = linkRate(manifest.link);
  const moved = (role) => Math.max(0, ...(summary.bytes ?? []).filter((check) => check.role.startsWith(role)).map((check) => check.measured ?? 0));
  const linkOf = (role, count) => (rate ? moved(role) / count / summary.steps / rate : 0);
  const step = summary.step_s;
  return {
    step, exposed: summary.exposed_comm_s ?? 0, slowest,
    busy: Math.max(step - (summary.exposed_comm_s ?? 0), slowest.busy_step_s.median),
    othersBusy: median(others.map((worker) => worker.busy_step_s.median)),
    othersExposed: median(others.map((worker) => worker.exposed_step_s.median)),
    delay: Math.max(0, ...own.map((worker) => worker.run_delay ?? 0)),
    workerLink: linkOf("worker", 1), serverLink: linkOf("servers", manifest.job.servers || 1),
  };
}

/// Returns {bound, because, next, change}, the texts in compare's words; `change` is [option, value], or null if no single
/// option follows. Null if the run did not record enough.
export function boundOf(run) {
  const f = run.summary && run.workers ? figures(run) : null;
  if (!f) return null;
  const { job } = run.manifest;
  const doubled = (option, value) => (value ? [option, String(2 * value)] : null);
  const largerBatch = { next: "a larger --global-batch: fewer exchanges", change: doubled("--global-batch", job.global_batch) };
  const link = Math.max(f.workerLink, f.serverLink);
  if (link >= f.step / 2 && link >= f.busy) {
    const because = f.serverLink > 0 ? `a worker's link alone needs ${ms(f.workerLink)} ms, a server's ${ms(f.serverLink)}; the step took ${ms(f.step)}`
      : `the link alone needs ${ms(link)} ms; the step took ${ms(f.step)}`;
    if (f.serverLink <= f.workerLink) return { bound: "worker link", because, ...largerBatch };
    return { bound: "server link", because, ...(job.servers < job.workers ? { next: "more --servers", change: doubled("--servers", job.servers) } : largerBatch) };
  }
  const longer = f.slowest.busy_step_s.median - f.othersBusy;
  if (job.consistency !== "asp" && f.delay < kDelayed && f.othersBusy > 0 && f.slowest.busy_step_s.median >= kStraggler * f.othersBusy && f.othersExposed >= longer / 2)
    return { bound: "slowest worker", next: "ps-async does not wait for it", change: null,
             because: `${f.slowest.process} computes for ${ms(f.slowest.busy_step_s.median)} ms a step, the others for ${ms(f.othersBusy)}; all wait for ${f.slowest.process}` };
  if (f.delay >= kDelayed)
    return { bound: "processors", because: `a worker had no processor for ${Math.round(100 * f.delay)} % of its time`,
             next: job.workers > 1 ? "fewer --workers, or more processors" : "more processors", change: job.workers > 1 ? ["--workers", String(Math.ceil(job.workers / 2))] : null };
  if (f.busy >= f.step / 2)
    return { bound: "compute", because: `computes for ${ms(f.busy)} of ${ms(f.step)} ms`, next: "more --threads", change: doubled("--threads", job.threads) };
  const because = `waits for ${ms(f.exposed)} of ${ms(f.step)} ms`;
  if (job.overlap === false) return { bound: "latency", because, next: "--overlap on: exchange during backward", change: ["--overlap", "on"] };
  return { bound: job.servers ? "exchange" : "latency", because, ...largerBatch };
}

/// Options that belong to the one run: its folder, its faults, and who watches it.
const kOwnOptions = ["--out", "--fault", "--resume", "--live"];

/// Returns the words without an option and its value.
function without(words, flag) {
  const at = words.findIndex((word) => word === flag || word.startsWith(`${flag}=`));
  if (at < 0) return words;
  const valued = words[at] === flag && at + 1 < words.length && !words[at + 1].startsWith("--");
  return without([...words.slice(0, at), ...words.slice(at + (valued ? 2 : 1))], flag);
}
const trainOptions = (command) => kOwnOptions.reduce(without, command.slice(2));

/// Returns the run's command with one option changed; empty if the run was not made by train.
export const changed = (command, [option, value]) =>
  command[1] === "train" ? [...command.slice(0, 2), ...without(trainOptions(command), option), option, value] : [];

/// Returns the command that compares the run with other strategies; empty if the run was not made by train.
export function compared(command, strategy) {
  if (command[1] !== "train") return [];
  const others = ["ddp", "ps", "ps-async"].filter((one) => one !== strategy);
  return [command[0], "compare", "--strategies", [strategy, ...others].join(","), ...without(trainOptions(command), "--strategy")];
}
