#include <psring/cli/train/requeue.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/local_cluster.h>

namespace psring::cli {

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

}  // namespace psring::cli
