#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace psring {

/// The value of an environment variable; nothing if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// The environment of this process.
Environment process_environment();

/// The job of Slurm in which this process runs.
struct SlurmJob {
  std::string id;
  std::uint32_t restarts = 0;  ///< how often Slurm has requeued the job
  std::size_t nodes = 1;       ///< nodes of the allocation
};

/// Returns nothing outside a job of Slurm. Throws usage, naming the variable, if a value is no number.
std::optional<SlurmJob> slurm_job(const Environment& environment);

/// A task: one of the equal processes that a launcher has started.
struct LaunchedTask {
  std::string launcher;        ///< the launcher's program, for people: srun or mpirun
  std::uint32_t rank = 0;      ///< among all tasks
  std::size_t tasks = 1;       ///< all tasks
  std::uint32_t here = 0;      ///< rank among the tasks of this host
  std::size_t tasks_here = 1;  ///< tasks of this host
  /// Equal for the tasks of one start, and for no others: "slurm-17.0-0". "" if the launcher gives none.
  std::string name = {};
  std::vector<std::string> other_nodes = {};  ///< names of the other hosts, as far as the launcher tells them
  std::uint32_t restart = 0;                  ///< of torchrun: how often it has started its tasks again
  std::string rank_variable = {};             ///< that the launcher gives each task: "RANK"
  bool has_store = false;                     ///< the launcher itself listens at MASTER_ADDR:MASTER_PORT

  bool on_one_host() const { return tasks_here == tasks; }
};

/// The words of --launcher: "auto, slurm, mpi, flux, torchrun or none".
std::string launcher_words();

/// Returns the task that this process is. `launcher`: auto, to look for the task of any launcher; the word of one,
/// whose task this process must be; or none. Returns nothing if no launcher has started this process as a task. Throws
/// usage, naming the variable and --launcher, if a launcher's variable is set but the others that tell the place of the
/// task are not, or if a value is wrong; and, naming --launcher, if the wanted launcher has not started this process.
std::optional<LaunchedTask> launched_task(const std::string& launcher, const Environment& environment);

/// Returns true if a launcher's variable is set, whether or not it tells the place of the task.
bool has_launcher(const Environment& environment);

}  // namespace psring
