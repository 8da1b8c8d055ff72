#include <chrono>
#include <fstream>
#include <system_error>

#include <psring/cli/launch.h>
#include <psring/cli/progress.h>
#include <psring/common/base/error.h>
#include <psring/common/net/host.h>
#include <psring/common/net/key.h>
#include <psring/common/proc/agent.h>
#include <psring/common/proc/coordinator_process.h>
#include <psring/common/proc/local_cluster.h>
#include <psring/server/consistency.h>

namespace psring::cli {
namespace {

const char* const kSelf = "/proc/self/exe";

/// The job's key in the run folder, for as long as the job runs.
class JobKeyFile {
 public:
  explicit JobKeyFile(const std::filesystem::path& file) : file_(file) {
    std::filesystem::remove(file_);
    net::JobKey::generate().save(file_);
  }
  ~JobKeyFile() {
    std::error_code ignored;
    std::filesystem::remove(file_, ignored);
  }
  JobKeyFile(const JobKeyFile&) = delete;
  JobKeyFile& operator=(const JobKeyFile&) = delete;

 private:
  std::filesystem::path file_;
};

void write_file(const std::filesystem::path& file, const std::string& text) {
  std::ofstream out(file);
  out << text << "\n";
  out.close();
  if (!out) fail(ErrorKind::data, "{}: cannot write", file.string());
}

}  // namespace

worker::TrainSetup prepare(const JobOptions& job, const App& app) {
  const auto aggregator = app.aggregators().make(Spec::parse("--aggregate", job.aggregate));
  const std::vector<float> one(1);
  const std::vector<const float*> inputs(job.workers, one.data());
  std::vector<float> out(1);
  aggregator->aggregate(inputs, out);  // a rule may want more workers than there are
  server::make_consistency(Spec::parse("--consistency", job.consistency));
  return {job, app.worker_registries(), app.optimizers()};
}

LaunchResult launch(const JobOptions& job, const LaunchOptions& options, SignalWatch& signals) {
  const SystemClock clock;
  write_file(options.out / "job.json", to_json(job));
  const std::filesystem::path key = options.key_file.value_or(options.out / "job.key");
  std::optional<JobKeyFile> own_key;
  if (!options.key_file) own_key.emplace(key);

  const std::string self = std::filesystem::read_symlink(kSelf).string();
  LocalCluster coordinator(options.out / "logs", clock);
  std::optional<Progress> progress;
  std::vector<std::string> argv{self,       "coordinator",  "--job",   (options.out / "job.json").string(),
                                "--key",    key.string(),   "--out",   options.out.string(),
                                "--listen", options.listen, "--nodes", std::to_string(options.nodes)};
  if (options.show_progress) {
    progress.emplace(options.label);
    argv.insert(argv.end(), {"--progress-fd", std::to_string(progress->write_end())});
  }
  const Moment deadline = clock.now() + from_seconds(job.join_timeout);
  const std::string endpoint = start_coordinator(
      coordinator, argv, deadline, clock, progress ? std::vector<int>{progress->write_end()} : std::vector<int>{});
  if (progress) progress->started();
  if (options.nodes > 1) fmt::print("coordinator at {}: waiting for {} more agents\n", endpoint, options.nodes - 1);

  const AgentResult result = run_agent({.endpoint = endpoint,
                                        .key_file = key,
                                        .command = {self},
                                        .log_folder = options.out / "logs",
                                        .host_id = net::host_id(),
                                        .rank = 0,
                                        .join_timeout = from_seconds(job.join_timeout)},
                                       signals, clock);
  // The coordinator ends by itself once its members have left; what it wrote is whole then.
  const auto exit = coordinator.next_exit(clock.now() + std::chrono::seconds(15));
  if (!exit) coordinator.terminate_all(std::chrono::seconds(1));
  return {result.status, result.cause};
}

std::filesystem::path make_run_folder(const std::string& wanted, const std::string& name) {
  namespace fs = std::filesystem;
  fs::path folder = wanted;
  if (wanted.empty())
    for (int number = 1; folder.empty() || fs::exists(folder); ++number)
      folder = fs::path("runs") / fmt::format("{}-{:03}", name, number);
  std::error_code error;
  if (fs::exists(folder / "job.json", error)) fail(ErrorKind::usage, "--out {}: holds a run already", folder.string());
  fs::create_directories(folder, error);
  if (error) fail(ErrorKind::data, "--out {}: {}", folder.string(), error.message());
  return fs::canonical(folder);
}

}  // namespace psring::cli
