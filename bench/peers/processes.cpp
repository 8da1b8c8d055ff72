#include <chrono>

#include <fmt/format.h>

#include <psring/bench/peers/processes.h>
#include <psring/common/net/key.h>
#include <psring/common/proc/coordinator/coordinator_process.h>

namespace psring::bench {

std::vector<std::string> own_command(const char* name,
                                     std::initializer_list<std::pair<const char*, std::string>> options) {
  std::vector<std::string> words{std::filesystem::read_symlink("/proc/self/exe").string(), name};
  for (const auto& [flag, value] : options) words.insert(words.end(), {flag, value});
  return words;
}

BenchFolder::BenchFolder() : folder_("psring-bench") { net::JobKey::generate().save(key_file()); }

ServerProcesses::ServerProcesses() : cluster_(folder_.logs(), clock_) {}

ServerProcesses::~ServerProcesses() { cluster_.terminate_all(std::chrono::seconds(1)); }

std::string ServerProcesses::start(ServerPlan plan) {
  const std::string name = fmt::format("{} server {}", to_string(plan.kind), started_++);
  std::vector<std::string> argv = own_command("serve", {{"--kind", to_string(plan.kind)},
                                                        {"--key", key_file()},
                                                        {"--threads", std::to_string(plan.threads)},
                                                        {"--lr", fmt::format("{}", plan.lr)}});
  for (const std::size_t elements : plan.elements) argv.insert(argv.end(), {"--elements", std::to_string(elements)});
  return start_listening(cluster_, name, std::move(argv), clock_.now() + std::chrono::seconds(30), clock_);
}

}  // namespace psring::bench
