#include <charconv>
#include <cstdlib>

#include <psring/common/base/error.h>
#include <psring/common/proc/launched_task.h>
#include <psring/common/proc/node_list.h>

namespace psring {
namespace {

std::optional<std::uint32_t> number_of(const Environment& environment, const std::string& name) {
  const std::optional<std::string> text = environment(name);
  if (!text) return std::nullopt;
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc{} || end != text->data() + text->size())
    fail(ErrorKind::usage, "{}={}: expected a whole number", name, *text);
  return number;
}

std::uint32_t required(const Environment& environment, const std::string& name, const char* beside) {
  const auto number = number_of(environment, name);
  if (!number) fail(ErrorKind::usage, "{}: is not set, although {} is", name, beside);
  return *number;
}

/// Throws usage if the numbers cannot belong together.
LaunchedTask checked(LaunchedTask task) {
  if (task.rank >= task.tasks || task.here >= task.tasks_here || task.tasks_here > task.tasks)
    fail(ErrorKind::usage, "--launcher: {} tells of task {} of {}, which is task {} of {} on this host", task.launcher,
         task.rank, task.tasks, task.here, task.tasks_here);
  return task;
}

/// srun sets SLURM_STEP_ID; in the batch script itself it is not set. srun of an interactive shell (salloc with
/// LaunchParameters=use_interactive_step) sets a reserved number, which is no step of tasks.
bool is_step(const Environment& environment) {
  constexpr std::uint32_t kFirstReserved = 0xfffffff0;
  const auto step = number_of(environment, "SLURM_STEP_ID");
  return step && *step < kFirstReserved && environment("SLURM_PROCID") && environment("SLURM_JOB_ID");
}

LaunchedTask task_of_slurm(const Environment& environment) {
  const char* const beside = "SLURM_STEP_ID";
  const std::string nodes = environment("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  const std::string counts =
      environment("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  const std::string tasks = environment("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  const std::uint32_t node = required(environment, "SLURM_NODEID", beside);
  const auto tasks_per_node = parse_tasks_per_node(counts, environment(counts).value_or(""));
  if (node >= tasks_per_node.size())
    fail(ErrorKind::usage, "{}={}: has no node {}", counts, environment(counts).value_or(""), node);
  LaunchedTask task{.launcher = "srun",
                    .rank = required(environment, "SLURM_PROCID", beside),
                    .tasks = required(environment, tasks, beside),
                    .here = required(environment, "SLURM_LOCALID", beside),
                    .tasks_here = tasks_per_node[node],
                    .name = fmt::format("slurm-{}.{}-{}", required(environment, "SLURM_JOB_ID", beside),
                                        required(environment, "SLURM_STEP_ID", beside),
                                        number_of(environment, "SLURM_RESTART_COUNT").value_or(0))};
  task.other_nodes = parse_node_list(nodes, environment(nodes).value_or(""));
  if (node < task.other_nodes.size()) task.other_nodes.erase(task.other_nodes.begin() + node);
  return checked(task);
}

/// Open MPI's mpirun, up to version 4 and from version 5 on, which differ in the name of the job.
LaunchedTask task_of_open_mpi(const Environment& environment) {
  const char* const beside = "OMPI_COMM_WORLD_RANK";
  const auto space = environment("PMIX_NAMESPACE");
  std::string name;
  // The name is part of a file name.
  for (const char c : space.value_or(""))
    name += (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ? c : '-';
  return checked({.launcher = "mpirun",
                  .rank = required(environment, beside, beside),
                  .tasks = required(environment, "OMPI_COMM_WORLD_SIZE", beside),
                  .here = required(environment, "OMPI_COMM_WORLD_LOCAL_RANK", beside),
                  .tasks_here = required(environment, "OMPI_COMM_WORLD_LOCAL_SIZE", beside),
                  .name = name.empty() ? "" : "mpi-" + name});
}

/// Hydra, the mpirun of MPICH and of its kin (Intel MPI, MVAPICH).
LaunchedTask task_of_hydra(const Environment& environment) {
  const char* const beside = "PMI_RANK";
  return checked({.launcher = "mpirun",
                  .rank = required(environment, "PMI_RANK", beside),
                  .tasks = required(environment, "PMI_SIZE", beside),
                  .here = required(environment, "MPI_LOCALRANKID", beside),
                  .tasks_here = required(environment, "MPI_LOCALNRANKS", beside),
                  .name = ""});
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

std::optional<LaunchedTask> launched_task(const std::string& launcher, const Environment& environment) {
  if (launcher != "auto" && launcher != "slurm" && launcher != "mpi" && launcher != "none")
    fail(ErrorKind::usage, "--launcher {}: expected auto, slurm, mpi or none", launcher);
  if (launcher == "none") return std::nullopt;
  // mpirun comes first: in a job of Slurm it starts its own helpers by srun, whose variables its tasks inherit.
  if (launcher != "slurm") {
    if (environment("OMPI_COMM_WORLD_RANK")) return task_of_open_mpi(environment);
    if (environment("PMI_RANK") && environment("MPI_LOCALRANKID")) return task_of_hydra(environment);
  }
  if (launcher != "mpi" && is_step(environment)) return task_of_slurm(environment);
  if (launcher != "slurm" && environment("PMIX_RANK"))
    fail(ErrorKind::usage,
         "--launcher {}: PMIX_RANK is set, but no variable of Open MPI or MPICH tells the number of tasks", launcher);
  if (launcher == "slurm")
    fail(ErrorKind::usage, "--launcher slurm: this process is no task of srun: start it as srun psring ...");
  if (launcher == "mpi")
    fail(ErrorKind::usage,
         "--launcher mpi: this process is no task of mpirun, or of an mpirun other than Open MPI's and MPICH's");
  return std::nullopt;
}

}  // namespace psring
