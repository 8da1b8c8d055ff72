#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

#include <fmt/format.h>
#include <stdlib.h>

#include <psring/bench/processes.h>
#include <psring/common/base/error.h>
#include <psring/common/net/key.h>
#include <psring/common/proc/coordinator_process.h>

namespace psring::bench {
namespace {

std::filesystem::path make_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "psring-bench-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) fail(ErrorKind::data, "{}: {}", name, std::strerror(errno));
  return name;
}

}  // namespace

BenchFolder::BenchFolder() : path_(make_folder()) { net::JobKey::generate().save(key_file()); }

BenchFolder::~BenchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Servers::Servers() : cluster_(folder_.path(), clock_) {}

Servers::~Servers() { cluster_.terminate_all(std::chrono::seconds(1)); }

std::string Servers::start(ServerPlan plan) {
  const std::string name = fmt::format("{} server {}", to_string(plan.kind), started_++);
  std::vector<std::string> argv{std::filesystem::read_symlink("/proc/self/exe").string(),
                                "serve",
                                "--kind",
                                to_string(plan.kind),
                                "--key",
                                key_file(),
                                "--threads",
                                std::to_string(plan.threads),
                                "--lr",
                                fmt::format("{}", plan.lr)};
  for (const std::size_t elements : plan.elements) argv.insert(argv.end(), {"--elements", std::to_string(elements)});
  return start_listening(cluster_, name, std::move(argv), clock_.now() + std::chrono::seconds(30), clock_);
}

}  // namespace psring::bench
