#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <utility>

#include <fmt/ranges.h>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/number.h>
#include <psring/common/proc/launched_task.h>
#include <psring/common/proc/node_list.h>

namespace psring {
namespace {

std::optional<std::uint32_t> number_of(const Environment& environment, const std::string& name) {
  const std::optional<std::string> text = environment(name);
  if (!text) return std::nullopt;
  const auto number = read_number<std::uint32_t>(*text);
  if (!number)
    fail(ErrorKind::usage, "{}={}: expected a whole number; --launcher none ignores launchers' variables", name, *text);
  return number;
}

/// Names of one value in the order in which they are looked for; launchers, and their versions, differ.
using Names = std::array<const char*, 4>;

/// A program that starts equal processes, its tasks, and the variables in which a task finds its place.
struct Launcher {
  const char* program;   ///< for people
  const char* option;    ///< the word of --launcher
  Names rank;            ///< among all tasks
  Names size = {};       ///< the number of tasks
  Names here = {};       ///< rank among the tasks of this host
  Names size_here = {};  ///< tasks of this host, or of each host if `node` tells which of them is this one
  Names node = {};
  Names nodes = {};  ///< the number of hosts, if the launcher does not give `size_here`
  Names hosts = {};  ///< the names of all hosts
  Names job = {};    ///< the name of the start; must tell two starts apart
  Names marks = {};  ///< variables that show a task, beside `rank` and `here`
};

/// All launchers that psring knows. If several have set their variables, the first whose variables are complete counts:
/// an inner launcher comes before an outer one, whose variables the tasks inherit.
constexpr Launcher kLaunchers[] = {
    // Also python -m psring.run.
    {.program = "torchrun",
     .option = "torchrun",
     .rank = {"RANK"},
     .size = {"WORLD_SIZE"},
     .here = {"LOCAL_RANK"},
     .size_here = {"LOCAL_WORLD_SIZE"},
     .marks = {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RUN_ID"}},
    // Versions up to 4 and from 5 on differ in the form of the job's name.
    {.program = "mpirun",
     .option = "mpi",
     .rank = {"OMPI_COMM_WORLD_RANK"},
     .size = {"OMPI_COMM_WORLD_SIZE"},
     .here = {"OMPI_COMM_WORLD_LOCAL_RANK"},
     .size_here = {"OMPI_COMM_WORLD_LOCAL_SIZE"},
     .job = {"PMIX_NAMESPACE"},
     .marks = {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}},
    {.program = "mpirun",  // MVAPICH 2
     .option = "mpi",
     .rank = {"MV2_COMM_WORLD_RANK"},
     .size = {"MV2_COMM_WORLD_SIZE"},
     .here = {"MV2_COMM_WORLD_LOCAL_RANK"},
     .size_here = {"MV2_COMM_WORLD_LOCAL_SIZE"},
     .marks = {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"}},
    {.program = "mpirun",  // MVAPICH 3 and later
     .option = "mpi",
     .rank = {"MVP_COMM_WORLD_RANK"},
     .size = {"MVP_COMM_WORLD_SIZE"},
     .here = {"MVP_COMM_WORLD_LOCAL_RANK"},
     .size_here = {"MVP_COMM_WORLD_LOCAL_SIZE"},
     .marks = {"MVP_COMM_WORLD_SIZE", "MVP_COMM_WORLD_LOCAL_SIZE"}},
    {.program = "jsrun",
     .option = "mpi",
     .rank = {"JSM_NAMESPACE_RANK"},
     .size = {"JSM_NAMESPACE_SIZE"},
     .here = {"JSM_NAMESPACE_LOCAL_RANK"},
     .size_here = {"JSM_NAMESPACE_LOCAL_SIZE"},
     .marks = {"JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_SIZE"}},
    {.program = "flux run",
     .option = "flux",
     .rank = {"FLUX_TASK_RANK"},
     .size = {"FLUX_JOB_SIZE"},
     .here = {"FLUX_TASK_LOCAL_ID"},
     .nodes = {"FLUX_JOB_NNODES"},
     .job = {"FLUX_JOB_ID"},
     .marks = {"FLUX_JOB_SIZE"}},
    {.program = "mpiexec of PALS",
     .option = "mpi",
     .rank = {"PALS_RANKID"},
     .size = {"PMI_SIZE", "PALS_SIZE"},
     .here = {"PALS_LOCAL_RANKID"},
     .size_here = {"PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"},
     .job = {"PALS_APID"},
     .marks = {"PALS_NODEID", "PALS_SIZE", "PALS_LOCAL_SIZE"}},
    {.program = "aprun", .option = "mpi", .rank = {"ALPS_APP_PE"}},
    // Hydra, of MPICH and Intel MPI, and others that speak its protocol.
    {.program = "mpirun",
     .option = "mpi",
     .rank = {"PMI_RANK", "PMI_ID"},
     .size = {"PMI_SIZE"},
     .here = {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"},
     .size_here = {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"},
     .marks = {"PMI_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "PMI_FD"}},
    {.program = "horovodrun",
     .option = "mpi",
     .rank = {"HOROVOD_RANK"},
     .size = {"HOROVOD_SIZE"},
     .here = {"HOROVOD_LOCAL_RANK"},
     .size_here = {"HOROVOD_LOCAL_SIZE"},
     .marks = {"HOROVOD_SIZE", "HOROVOD_LOCAL_SIZE"}},
    {.program = "the tracker of ps-lite", .option = "mpi", .rank = {}, .marks = {"DMLC_ROLE"}},
    {.program = "srun",
     .option = "slurm",
     .rank = {"SLURM_PROCID"},
     .size = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     .here = {"SLURM_LOCALID"},
     .size_here = {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"},
     .node = {"SLURM_NODEID"},
     .hosts = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}},
    {.program = "a launcher that uses PMIx", .option = "mpi", .rank = {"PMIX_RANK"}},
};

/// The variable among `names` that is set; "" if none is.
std::string set_one(const Environment& environment, const Names& names) {
  for (const char* name : names)
    if (name != nullptr && environment(name)) return name;
  return "";
}

/// srun sets SLURM_STEP_ID; in the batch script itself it is not set. srun of an interactive shell (salloc with
/// LaunchParameters=use_interactive_step) sets a reserved number, which is no step of tasks.
bool is_step(const Environment& environment) {
  constexpr std::uint32_t kFirstReserved = 0xfffffff0;
  const auto step = number_of(environment, "SLURM_STEP_ID");
  return step && *step < kFirstReserved && environment("SLURM_JOB_ID");
}

/// The variable that shows a task of the launcher; "" if there is none.
std::string mark_of(const Launcher& launcher, const Environment& environment) {
  if (launcher.node[0] != nullptr && !is_step(environment)) return "";
  for (const Names& names : {launcher.rank, launcher.here, launcher.marks})
    if (std::string name = set_one(environment, names); !name.empty()) return name;
  return "";
}

/// The first variable that is missing to tell the task's place; nothing if all are set.
std::optional<std::string> missing_of(const Launcher& launcher, const Environment& environment) {
  const Names& counts = launcher.nodes[0] != nullptr ? launcher.nodes : launcher.size_here;
  for (const Names& names : {launcher.rank, launcher.size, launcher.here, counts})
    if (set_one(environment, names).empty()) return names[0] == nullptr ? "" : names[0];
  if (launcher.node[0] != nullptr && !environment(launcher.node[0])) return launcher.node[0];
  return std::nullopt;
}

std::uint32_t number_in(const Environment& environment, const Names& names) {
  return number_of(environment, set_one(environment, names)).value_or(0);
}

/// Throws usage if the numbers cannot belong together.
LaunchedTask checked(LaunchedTask task) {
  if (task.rank >= task.tasks || task.here >= task.tasks_here || task.tasks_here > task.tasks)
    fail(ErrorKind::usage, "--launcher: {} tells of task {} of {}, which is task {} of {} on this host", task.launcher,
         task.rank, task.tasks, task.here, task.tasks_here);
  return task;
}

std::size_t tasks_here(const Launcher& launcher, const Environment& environment, const LaunchedTask& task) {
  if (launcher.nodes[0] != nullptr) {  // the launcher does not give the distribution of the tasks over hosts
    const std::size_t nodes = std::max<std::size_t>(number_in(environment, launcher.nodes), 1);
    return std::min(task.tasks, std::max<std::size_t>((task.tasks + nodes - 1) / nodes, task.here + 1));
  }
  if (launcher.node[0] == nullptr) return number_in(environment, launcher.size_here);
  const std::string name = set_one(environment, launcher.size_here);
  const std::uint32_t node = number_in(environment, launcher.node);
  const auto counts = parse_tasks_per_node(name, *environment(name));
  if (node >= counts.size()) fail(ErrorKind::usage, "{}={}: has no node {}", name, *environment(name), node);
  return counts[node];
}

/// The name is part of a file name.
std::string name_of_start(const Launcher& launcher, const Environment& environment) {
  if (launcher.node[0] != nullptr)
    return fmt::format("{}-{}.{}-{}", launcher.option, number_of(environment, "SLURM_JOB_ID").value_or(0),
                       number_of(environment, "SLURM_STEP_ID").value_or(0),
                       number_of(environment, "SLURM_RESTART_COUNT").value_or(0));
  const std::string variable = set_one(environment, launcher.job);
  if (variable.empty()) return "";
  const std::string told = *environment(variable);
  std::string name = fmt::format("{}-", launcher.option);
  for (const char c : told)
    name += (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ? c : '-';
  return name;
}

/// REQUIRES: no variable is missing.
LaunchedTask read_task(const Launcher& launcher, const Environment& environment) {
  LaunchedTask task{.launcher = launcher.program,
                    .rank = number_in(environment, launcher.rank),
                    .tasks = number_in(environment, launcher.size),
                    .here = number_in(environment, launcher.here)};
  task.tasks_here = tasks_here(launcher, environment, task);
  task.name = name_of_start(launcher, environment);
  task.rank_variable = set_one(environment, launcher.rank);
  task.has_store = environment("TORCHELASTIC_USE_AGENT_STORE") == "True";
  task.restart = number_of(environment, "TORCHELASTIC_RESTART_COUNT").value_or(0);
  if (const std::string hosts = set_one(environment, launcher.hosts); !hosts.empty()) {
    const std::uint32_t node = number_in(environment, launcher.node);
    task.other_nodes = parse_node_list(hosts, *environment(hosts));
    if (node < task.other_nodes.size()) task.other_nodes.erase(task.other_nodes.begin() + node);
  }
  return checked(std::move(task));
}

/// A launcher that has started one task only need not tell the place of that task.
bool is_alone(const Launcher& launcher, const Environment& environment) {
  const std::string size = set_one(environment, launcher.size);
  return !size.empty() && number_of(environment, size) == 1u;
}

[[noreturn]] void refuse(const Launcher& launcher, const std::string& mark, const std::string& missing,
                         const Environment& environment) {
  fail(
      ErrorKind::usage,
      "{}={} is set, as {} does for each of its tasks, but {}; --launcher none ignores it, and starts a job of its own",
      mark, *environment(mark), launcher.program,
      missing.empty() ? "no variable tells the number of tasks" : missing + " is not");
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

std::optional<SlurmJob> slurm_job(const Environment& environment) {
  const auto id = number_of(environment, "SLURM_JOB_ID");
  if (!id) return std::nullopt;
  return SlurmJob{std::to_string(*id), number_of(environment, "SLURM_RESTART_COUNT").value_or(0),
                  number_of(environment, "SLURM_JOB_NUM_NODES").value_or(1)};
}

std::string launcher_words() {
  std::vector<std::string> words{"auto", "slurm", "mpi"};
  for (const Launcher& launcher : kLaunchers)
    if (std::find(words.begin(), words.end(), launcher.option) == words.end())
      words.insert(words.begin() + 3, launcher.option);
  return fmt::format("{} or none", fmt::join(words, ", "));
}

std::optional<LaunchedTask> launched_task(const std::string& launcher, const Environment& environment) {
  if (launcher == "none") return std::nullopt;
  const Launcher* first = nullptr;    // of the wanted launchers
  const Launcher* partial = nullptr;  // the first whose variables are not complete
  const Launcher* alone = nullptr;    // the first that has started one task only
  for (const Launcher& known : kLaunchers) {
    if (launcher != "auto" && launcher != known.option) continue;
    if (first == nullptr) first = &known;
    if (mark_of(known, environment).empty()) continue;
    if (!missing_of(known, environment)) return read_task(known, environment);
    const Launcher*& place = is_alone(known, environment) ? alone : partial;
    if (place == nullptr) place = &known;
  }
  if (first == nullptr) fail(ErrorKind::usage, "--launcher {}: expected {}", launcher, launcher_words());
  if (partial != nullptr)
    refuse(*partial, mark_of(*partial, environment), *missing_of(*partial, environment), environment);
  if (alone != nullptr) return LaunchedTask{.launcher = alone->program};
  if (launcher != "auto")
    fail(ErrorKind::usage, "--launcher {0}: this process is no task of {1}: start it as {1} psring ...", launcher,
         first->program);
  return std::nullopt;
}

bool has_launcher(const Environment& environment) {
  return std::any_of(std::begin(kLaunchers), std::end(kLaunchers),
                     [&](const Launcher& known) { return !mark_of(known, environment).empty(); });
}

}  // namespace psring
