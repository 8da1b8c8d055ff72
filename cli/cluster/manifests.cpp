#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include <psring/cli/cluster/kubernetes.h>
#include <psring/cli/commands.h>
#include <psring/cli/options/job_flags.h>
#include <psring/cli/options/resolve.h>
#include <psring/cli/train/set_up.h>
#include <psring/common/base/system/fd.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/key.h>
#include <psring/common/proc/options/table.h>

namespace psring::cli {
namespace {

namespace fs = std::filesystem;

struct ManifestsFlags {
  options::Given job;  ///< the options of the table
  std::string strategy = "ps";
  bool kubernetes = false;
  bool job_set = false;
  std::string key;
  std::string out;
  std::string server_cpu;
  std::string server_memory;
  std::optional<std::uint32_t> gpus;
  KubernetesJob cluster{.worker = {.cpu = "1", .memory = "2Gi"}};
};

/// Returns the job's options as words of a command line, in the order of the table.
std::vector<std::string> words_of(const options::Given& given) {
  std::vector<std::string> words;
  for (const options::Group& group : options::groups()) {
    for (const options::Option& option : group.options) {
      const auto found = given.find(option.name);
      if (found == given.end()) continue;
      words.push_back(std::string("--") + option.name);
      if (option.form != options::Form::flag) words.push_back(found->second);
    }
  }
  return words;
}

/// Checks the job as the coordinator will, except for files, which lie in the cluster.
JobOptions check_job(const ManifestsFlags& flags, const App& app) {
  options::Given given = flags.job;
  for (const char* const path : {"resume", "checkpoint-dir", "tuning", "init"}) given.erase(path);
  const auto kind = worker::make_strategy_kind(app.worker_registries(), "--strategy", flags.strategy, model_of(given));
  JobOptions job = resolve(given, flags.strategy, *kind, nullptr, false);
  if (job.transport == "shm") fail(ErrorKind::usage, "--transport shm: each process has a pod, which shares no memory");
  if (job.min_workers > 0)
    fail(ErrorKind::usage,
         "--elastic: Kubernetes replaces a lost pod for as long as the job runs; give --max-restarts");
  check_servers_part(job, app);
  return job;
}

/// The text of the key file; of a new key if there is none.
std::string key_text(const std::string& file) {
  if (file.empty()) return net::JobKey::generate().text();
  return net::JobKey::load(file).text();
}

/// Writes a new file that only this user can read: it may hold the key.
void write_new(const fs::path& file, const std::string& text) {
  const Fd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd && errno == EEXIST)
    fail(ErrorKind::usage, "--out: {} exists already; remove it or choose another folder", file.string());
  std::string_view left = text;
  while (static_cast<bool>(fd) && !left.empty()) {
    const ssize_t written = ::write(fd.get(), left.data(), left.size());
    if (written < 0 && errno != EINTR) break;
    if (written > 0) left.remove_prefix(static_cast<std::size_t>(written));
  }
  if (!fd || !left.empty())
    fail(ErrorKind::data, "{}: cannot write: {}", file.string(), std::generic_category().message(errno));
}

void write_manifests(const fs::path& folder, const std::vector<Manifest>& manifests) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(ErrorKind::data, "--out {}: {}", folder.string(), error.message());
  for (const Manifest& manifest : manifests) {
    write_new(folder / manifest.file, manifest.text);
    out::print("{}\n", (folder / manifest.file).string());
  }
}

int write_manifests(ManifestsFlags flags, const Invocation& invocation) {
  if (!flags.kubernetes) fail(ErrorKind::usage, "manifests: expected --kubernetes, the only kind of cluster");
  KubernetesJob& cluster = flags.cluster;
  if (!flags.key.empty() && !cluster.key_secret.empty())
    fail(ErrorKind::usage, "--key {}: --key-secret names a Secret that has the key already", flags.key);
  flags.job.try_emplace("max-restarts", "10");
  flags.job.try_emplace("join-timeout", "600");
  const JobOptions job = check_job(flags, invocation.app);
  cluster.job_args = {"--strategy", flags.strategy};
  const std::vector<std::string> words = words_of(flags.job);
  cluster.job_args.insert(cluster.job_args.end(), words.begin(), words.end());
  cluster.workers = job.workers;
  cluster.servers = job.server_processes();
  cluster.max_restarts = job.max_restarts;
  cluster.join_timeout = job.join_timeout;
  cluster.worker.gpus = flags.gpus.value_or(job.device == "cuda" ? 1 : 0);
  cluster.server = {.cpu = flags.server_cpu.empty() ? cluster.worker.cpu : flags.server_cpu,
                    .memory = flags.server_memory.empty() ? cluster.worker.memory : flags.server_memory,
                    .gpus = job.server_device == "cuda" ? std::size_t{1} : 0};
  check(cluster);
  if (cluster.key_secret.empty()) cluster.key = key_text(flags.key);
  const std::vector<Manifest> manifests = flags.job_set ? job_set_manifests(cluster) : job_manifests(cluster);
  if (!flags.out.empty()) {
    write_manifests(flags.out, manifests);
  } else {
    for (const Manifest& manifest : manifests) out::print("{}", manifest.text);
  }
  return 0;
}

}  // namespace

Command add_manifests(const Flags& program) {
  const Flags command = program.add_command("manifests", "write the manifests with which a cluster runs a job");
  auto flags = std::make_shared<ManifestsFlags>();  // shared: the parser fills it in, the command reads it
  KubernetesJob& cluster = flags->cluster;
  command.add_switch("--kubernetes", flags->kubernetes,
                     "for Kubernetes: a Job each for coordinator, servers and workers");
  command.add_switch("--jobset", flags->job_set, "one JobSet (jobset.x-k8s.io) in place of the Jobs");
  command.add("--image", cluster.image, "container image with psring").require();
  command
      .add("--runs-claim", cluster.runs_claim,
           "PersistentVolumeClaim for the run folder, which all pods mount at /runs")
      .require();
  command.add("--data-claim", cluster.data_claim,
              "PersistentVolumeClaim with data, mounted at /data (data in the image)");
  command.add("--name", cluster.name, "name of the job, of its objects and of its run folder").show_default();
  command.add("--namespace", cluster.cluster_namespace, "namespace (kubectl's)");
  command.add("--key", flags->key, "key file of the job (a new key)").show_value("FILE");
  command.add("--key-secret", cluster.key_secret,
              "Secret of the cluster that has the key as job.key (a Secret is written)");
  command.add("--cpu", cluster.worker.cpu, "processors of a worker").show_default();
  command.add("--memory", cluster.worker.memory, "memory of a worker").show_default();
  command.add("--gpus", flags->gpus, "GPUs of a worker (1 with --device cuda, else 0)");
  command.add("--server-cpu", flags->server_cpu, "processors of a server (as a worker)");
  command.add("--server-memory", flags->server_memory, "memory of a server (as a worker)");
  command.add("--port", cluster.port, "port of the coordinator").show_default();
  command.add("--out", flags->out, "folder for the manifests, a file each (printed to standard output)")
      .show_value("DIR");
  command.add("--strategy", flags->strategy, "strategy of training, such as single, ps, ddp or zero3").show_default();
  add_job_flags(command, flags->job);
  command.add_footer(
      "Paths in a job's options are paths in the pods. --max-restarts is 10 and --join-timeout 600 if not given.");
  return [flags](const Invocation& invocation) { return write_manifests(*flags, invocation); };
}

}  // namespace psring::cli
