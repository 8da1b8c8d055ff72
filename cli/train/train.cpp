#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include <fmt/format.h>

#include <psring/cli/cluster/manifest.h>
#include <psring/cli/commands.h>
#include <psring/cli/compare/comparison.h>
#include <psring/cli/options/job_flags.h>
#include <psring/cli/options/resolve.h>
#include <psring/cli/train/launch.h>
#include <psring/cli/train/launch_checks.h>
#include <psring/cli/train/live_view.h>
#include <psring/cli/train/other_load.h>
#include <psring/cli/train/set_up.h>
#include <psring/cli/train/summary_text.h>
#include <psring/cli/train/tasks.h>
#include <psring/cli/train/training.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/system/processors.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/base/text/text.h>
#include <psring/common/net/address.h>
#include <psring/common/net/key.h>
#include <psring/common/proc/launched_task.h>
#include <psring/common/proc/local_cluster.h>
#include <psring/common/proc/mesh_servers.h>
#include <psring/common/proc/options/check.h>
#include <psring/common/proc/options/table.h>
#include <psring/common/proc/options/values.h>
#include <psring/view/trace_file.h>
#include <psring/worker/model/generate/gpt_weights.h>
#include <psring/worker/model/parallel/schedule.h>
#include <psring/worker/state/checkpoints.h>
#include <psring/worker/training.h>

namespace psring::cli {
namespace {

struct TrainFlags {
  options::Given job;  ///< the options of the table
  std::string strategy = "ps";
  std::string out;
  std::optional<std::uint32_t> nodes;  ///< none: 1
  std::string listen;                  ///< "": see Tasks::listen_address
  std::string key;
  TaskFlags tasks;
  bool requeue = false;
  bool same_build = false;
};

/// Returns the names of the frozen units. If several units lie under one name (h.0.ln_1 and h.0.mlp under h.0) and all
/// of them are frozen, that name stands once for all of them.
std::vector<std::string> frozen_names(const Layout& layout) {
  std::set<std::string> trained;
  for (const UnitLayout& unit : layout.units)
    if (unit.trained) trained.insert(worker::common_name(unit.tensors));
  std::vector<std::string> names;
  for (const UnitLayout& unit : layout.units) {
    if (unit.trained) continue;
    const std::string common = worker::common_name(unit.tensors);
    const bool all = !common.empty() && !trained.contains(common);
    const std::string& name = all ? common : unit.name;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

void print_frozen(const worker::TrainSetup& setup) {
  const std::vector<std::string> names = frozen_names(setup.layout());
  std::size_t parameters = 0;
  for (const UnitLayout& unit : setup.layout().units)
    for (const TensorLayout& tensor : unit.tensors) parameters += unit.trained ? 0 : tensor.spec.elements();
  if (!names.empty()) out::print("not trained: {} parameters, of {}\n", parameters, fmt::join(names, ", "));
  const std::vector<std::string> stateless = worker::units_without_state(setup);
  if (!stateless.empty())
    out::print("--resume: saved without the optimizer's state of {}: it starts at zero\n", fmt::join(stateless, ", "));
}

/// The stages of a pipeline in the words of --stages, and if that is short, the order of their passes.
void print_stages(const worker::TrainSetup& setup) {
  const JobOptions& job = setup.job();
  if (job.pipeline == 1) return;
  std::vector<std::string> stages;
  std::size_t next = 0;  // layer with parameters
  for (const Range& layers : setup.whole().stages) {
    const std::size_t first = next;
    for (std::size_t layer = layers.begin; layer < layers.end; ++layer)
      if (!setup.model().layers[layer]->tensors().empty()) ++next;
    stages.push_back(first + 1 == next ? std::to_string(first) : fmt::format("{}-{}", first, next - 1));
  }
  out::print("{} of the model, in {} stages each: layers {} (--stages)\n",
             job.data_workers() == 1 ? "1 copy" : fmt::format("{} copies", job.data_workers()), stages.size(),
             fmt::join(stages, ","));
  constexpr std::size_t kMostPasses = 64;
  if (job.pipeline * job.accumulate > kMostPasses) return;
  std::vector<worker::StagePlan> plans;
  for (std::size_t stage = 0; stage < job.pipeline; ++stage)
    plans.push_back(worker::plan_stage(worker::parse_pipeline_schedule(job.pipeline_schedule), stage, job.pipeline,
                                       job.accumulate));
  out::print("{}", worker::describe(plans));
}

/// Names the model of --init's file if it has another specification: the same tensors can mean another function.
void print_other_model(const JobOptions& job) {
  if (job.init.empty()) return;
  if (const auto other = worker::other_model_of_file(worker::TensorFile(job.init), job.model))
    out::print("--init {}: was saved by --model {}\n", job.init, *other);
}

/// Names the tables, and what an update of rows does not do that one of dense parameters does.
void print_tables(const worker::TrainSetup& setup) {
  std::map<std::string, std::string> differences;
  const optim::TableRules& rules = *setup.rows().rules;
  for (const TableLayout& table : setup.layout().tables) {
    const optim::TableRule& own = rules.of(table.name);
    out::print("table '{}': rows of {} elements, {} (lr {:g}); a row appears when it is first trained\n", table.name,
               table.width, own.rule->name(), own.lr);
    differences.emplace(own.rule->name(), own.rule->difference());
  }
  for (const auto& [name, difference] : differences)
    if (!difference.empty()) out::print("--table-optimizer {}: {}\n", name, difference);
}

void print_plan(const worker::TrainSetup& setup) {
  const JobOptions& job = setup.job();
  const Layout& layout = setup.layout();
  std::size_t parameters = 0;
  for (const UnitLayout& unit : layout.units)
    for (const TensorLayout& tensor : unit.tensors) parameters += tensor.spec.elements();
  out::print("{}: {} in {}, {}, {} of {}\n", setup.model().name, count_of(parameters, "parameter"),
             count_of(layout.units.size(), "unit"), count_of(setup.data().train->size(), "sample"),
             count_of(setup.steps(), "step"), count_of(job.global_batch, "sample"));
  print_other_model(job);
  print_frozen(setup);
  print_tables(setup);
  if (setup.data().best) out::print("--data {}: {}\n", job.data, setup.data().best());
  print_stages(setup);
  if (job.share_gpu && setup.strategy().ring)
    out::print("workers may share a GPU: what they exchange goes through NCCL's sockets\n");
  if (!setup.strategy().servers) return;
  if (job.mesh().divides_model())
    return out::print("{}, {}{}: {} for each of {} parts of the model\n", count_of(job.workers, "worker"),
                      count_of(job.servers, "server"), job.colocated_servers() > 0 ? " in their processes" : "",
                      servers_of_part(job), job.mesh().model_workers());
  const auto part = [&](std::size_t server) {
    const std::size_t owned = layout.owned_elements(server);
    return fmt::format("{} of {} elements ({:.1f} %)", owned, layout.elements(),
                       100.0 * static_cast<double>(owned) / static_cast<double>(layout.elements()));
  };
  if (layout.weights.even())
    return out::print("{}, {}{}; each server holds {}, padding counted\n", count_of(job.workers, "worker"),
                      count_of(job.servers, "server"), job.colocated_servers() > 0 ? " in their processes" : "",
                      part(0));
  out::print("{} with a server in each process, which holds {}, and {}, which {} {}, padding counted\n",
             count_of(job.workers, "worker"), part(job.servers - 1),
             count_of(job.standalone_servers(), "standalone server"),
             job.standalone_servers() == 1 ? "holds" : "hold each", part(0));
}

/// Throws usage if --nodes or the number of workers does not fit the tasks. Returns the options that were given, with
/// a worker for each task.
options::Given fit_to_tasks(const TrainFlags& flags, const worker::StrategyKind& kind, const Tasks& tasks) {
  options::Given given = flags.job;
  if (!tasks.are_several()) return given;
  const std::string started = fmt::format("{} started {} tasks", tasks.launcher(), tasks.count());
  if (flags.nodes)
    fail(ErrorKind::usage, "--nodes {}: {}, which are the job's agents; use --launcher none to start agents by hand",
         *flags.nodes, started);
  if (kind.one_worker)
    fail(ErrorKind::usage, "--strategy {}: has one worker, but {}; start one", flags.strategy, started);
  const std::string workers = std::to_string(tasks.count());
  const auto wanted = given.find("workers");
  if (wanted != given.end() && wanted->second != workers)
    fail(ErrorKind::usage, "--workers {}: {}, and each task is a worker", wanted->second, started);
  given["workers"] = workers;
  return given;
}

/// Returns the run folder that was asked for. A job that Slurm may requeue needs a folder that its next start finds.
std::string wanted_folder(const TrainFlags& flags, const Tasks& tasks) {
  if (!flags.requeue || !flags.out.empty()) return flags.out;
  const std::string strategy = Spec::parse("--strategy", flags.strategy).name();
  return fmt::format("runs/{}-slurm-{}", strategy, tasks.slurm()->id);
}

/// Asks Slurm to start this process's job once more, later, which ends the job now. Throws data if scontrol fails.
void requeue(const SlurmJob& job, const std::filesystem::path& run_folder) {
  constexpr auto kPatience = std::chrono::seconds(30);
  out::print("Slurm job {}: is requeued, and continues with this run when Slurm starts the job again\n", job.id);
  std::fflush(stdout);
  const SystemClock clock;
  LocalCluster cluster(run_folder / "logs", clock, true);
  cluster.start("scontrol", {"scontrol", "requeue", job.id});
  const auto exit = cluster.next_exit(clock.now() + kPatience);
  if (!exit) fail(ErrorKind::timeout, "scontrol requeue {}: no answer for {:g} s", job.id, seconds(kPatience));
  if (exit->signal != 0 || exit->status != 0)
    fail(ErrorKind::data, "scontrol requeue {}: failed: {}", job.id, message_of(*exit));
}

void check_requeue(const TrainFlags& flags, const JobOptions& job, const Tasks& tasks) {
  if (!flags.requeue) return;
  if (!tasks.slurm()) fail(ErrorKind::usage, "--requeue: is for jobs of Slurm, and SLURM_JOB_ID is not set");
  if (job.checkpoint_every == 0)
    fail(ErrorKind::usage, "--requeue: the run continues from a checkpoint; add --checkpoint-every K");
}

int lead(const TrainFlags& flags, Tasks& tasks, const Invocation& invocation, SignalWatch& signals) {
  const worker::Registries& registries = invocation.app.worker_registries();
  const auto kind = worker::make_strategy_kind(registries, "--strategy", flags.strategy, model_of(flags.job));
  const options::Given given = fit_to_tasks(flags, *kind, tasks);
  const std::size_t nodes = flags.nodes.value_or(1);
  options::check_count("--nodes", nodes, options::kMostProcesses);
  if (nodes > 1 && flags.key.empty()) fail(ErrorKind::usage, "--nodes {}: give the job's --key to all hosts", nodes);
  const std::string listen = tasks.listen_address(flags.listen);
  const bool loopback = net::is_loopback(net::resolve_endpoint("--listen", listen, 0));
  JobOptions job = resolve(given, flags.strategy, *kind, nullptr, loopback);
  check_requeue(flags, job, tasks);
  const std::string out = wanted_folder(flags, tasks);
  if (flags.requeue && tasks.slurm()->restarts > 0 &&
      std::filesystem::exists(std::filesystem::path(out) / kManifestFile))
    return continue_requeued(out, flags.listen, tasks, invocation, signals);
  worker::TrainSetup setup = set_up(job, invocation.app);
  fill_in(job, invocation.app, &setup);
  if (!flags.key.empty()) net::JobKey::load(flags.key);  // a bad key is reported before anything is made
  const std::size_t agents = tasks.are_several() ? tasks.count() : nodes;
  check_host(job, agents, tasks.here(), listen);
  check_memory(setup, agents, tasks.here());
  if (!job.live.empty()) check_live_address(job.live);
  if (!out.empty() && std::filesystem::exists(std::filesystem::path(out) / "compare.json"))
    fail(ErrorKind::usage, "--out {}: holds a comparison; choose another --out", out);
  LaunchOptions options{.out = make_run_folder(out, Spec::parse("--strategy", flags.strategy).name()),
                        .nodes = nodes,
                        .listen = listen,
                        .label = flags.strategy,
                        .same_build = flags.same_build,
                        .requeue = flags.requeue};
  if (!flags.key.empty()) options.key_file = std::filesystem::absolute(flags.key);
  tasks.prepare(options);
  tasks.warn_of_idle_nodes(nodes);
  job.out = options.out.string();
  return run_training(setup, job, options, invocation, signals);
}

/// Adds to summary.json what bounds a step.
void record_bound(const LaunchOptions& options, const JobOptions& job, const Summary& summary,
                  std::optional<double> others, const App& app) {
  if (summary.steps == 0) return;
  const Row row{
      .entry = {.label = job.strategy,
                .job = job,
                .kind = worker::make_strategy_kind(app.worker_registries(), "--strategy", job.strategy, job.model)},
      .runs = {summary},
      .processors = usable_processors(),
      .hosts = options.nodes,
      .others = {others}};
  const std::string file = (options.out / "summary.json").string();
  Json json = Json::parse(read_whole(file));
  json["bound"] = bound_json(row);
  write_whole(file, json.dump(2) + "\n");
}

int train(const TrainFlags& flags, const Invocation& invocation) {
  SignalWatch signals(SignalWatch::Effect::ends_process);
  Tasks tasks(flags.tasks, !flags.key.empty());
  if (tasks.are_several()) signals.hold();  // task 0 tells the others that it ends
  if (!tasks.follows()) return tasks.lead([&] { return lead(flags, tasks, invocation, signals); });
  JobOptions job;
  if (const auto given = flags.job.find("join-timeout"); given != flags.job.end())
    options::set(job, options::at("join-timeout"), given->second);
  return tasks.follow({flags.key, flags.out, from_seconds(job.join_timeout)}, signals, invocation);
}

}  // namespace

int run_training(const worker::TrainSetup& setup, const JobOptions& job, const LaunchOptions& options,
                 const Invocation& invocation, SignalWatch& signals) {
  print_plan(setup);
  std::optional<LiveView> live;
  LaunchOptions all = options;
  const OtherLoad others;
  if (!job.live.empty()) all.live = &live.emplace(options.out, job.live, options.next_part);
  const LaunchResult result = launch(job, all, invocation, signals);
  if (result.status != 0) {
    record_end(options.out, result.cause);
    signals.end();  // from here on signals end this process: printing may block
    invocation.output.settle();
    out::error(result.cause);
    if (live) live->end();
    if (options.requeue && result.interrupted.signal == SIGUSR1) requeue(*options.slurm_job, options.out);
    return result.status;
  }
  if (job.trace) view::write_trace(options.out);
  const Summary summary = summarise(options.out, job, invocation);
  record_bound(options, job, summary, others.processors(), invocation.app);
  signals.end();  // the files are whole
  out::print("{}", describe(summary, options.out));
  std::fflush(stdout);
  if (live) live->end();
  return summary.ok() ? 0 : exit_status(ErrorKind::check_failed);
}

Command add_train(const Flags& program) {
  const Flags command = program.add_command("train", "train a model: start all processes, wait for them, sum up");
  auto flags = std::make_shared<TrainFlags>();  // shared: the parser fills it in, the command reads it
  command.add("--strategy", flags->strategy, "strategy of training, such as single, ps, ddp or zero3").show_default();
  command.add("--out", flags->out, "run folder (a new folder in runs/)").show_value("DIR");
  command.add("--nodes", flags->nodes, "number of hosts: this host, and the hosts whose agents connect")
      .show_default("1");
  command
      .add("--listen", flags->listen,
           "ADDR:PORT of the coordinator; port 0: any free port (with tasks on several hosts: an address of this host)")
      .show_default("127.0.0.1:0");
  command.add("--key", flags->key, "key file of the job (on one host: a new key for this job)").show_value("FILE");
  add_task_flags(command, flags->tasks);
  command.add_switch("--requeue", flags->requeue,
                     "at SIGUSR1 save a checkpoint and let Slurm start the job again later, which continues the run");
  add_same_build(command, flags->same_build);
  add_job_flags(command, flags->job);
  return [flags](const Invocation& invocation) { return train(*flags, invocation); };
}

}  // namespace psring::cli
