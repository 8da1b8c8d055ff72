#include <chrono>
#include <cstdio>
#include <cstring>
#include <system_error>

#include <fmt/format.h>

#include <psring/cli/train/live_view.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/net/address.h>
#include <psring/common/net/tcp/socket.h>
#include <psring/common/proc/coordinator/coordinator_process.h>

namespace psring::cli {
namespace {

constexpr const char* kName = "live-view";
constexpr Nanoseconds kStart = std::chrono::seconds(30);
constexpr Nanoseconds kFarewell = std::chrono::seconds(6);  ///< the view looks each second, and then waits for 3 s

}  // namespace

LiveView::LiveView(const std::filesystem::path& folder, const std::string& listen, bool next_part)
    : cluster_(folder / "logs", clock_, next_part) {
  check_live_address(listen);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  try {
    const std::string url = start_listening(cluster_, kName, {self, "watch", folder.string(), "--listen", listen},
                                            clock_.now() + kStart, clock_);
    out::print("live view: {}\n", url);
    std::fflush(stdout);
  } catch (const Error& error) {
    fail(ErrorKind::usage, "--live {}: {}", listen, error.what());
  }
}

std::vector<int> LiveView::tend() {
  if (ended_) return {};
  const auto exit = cluster_.next_exit(clock_.now());
  if (!exit) return cluster_.fds();
  ended_ = true;
  const std::string how = exit->signal != 0
                              ? fmt::format("was ended by signal {} ({})", exit->signal, ::strsignal(exit->signal))
                              : fmt::format("has ended with status {}: {}", exit->status, message_of(*exit));
  out::print("the live view {}; the job goes on without it\n", how);
  std::fflush(stdout);
  return {};
}

void LiveView::end() {
  if (!ended_ && !cluster_.next_exit(clock_.now() + kFarewell)) cluster_.terminate_all(std::chrono::seconds(1));
  ended_ = true;
}

void check_live_address(const std::string& listen) {
  const net::Endpoint endpoint = net::resolve_endpoint("--live", listen, 0);
  try {
    net::listen_tcp(endpoint.host, endpoint.port);
  } catch (const Error& error) {
    fail(ErrorKind::usage, "--live {}: {}", listen, error.what());
  }
}

void record_end(const std::filesystem::path& folder, const std::string& cause) {
  std::error_code ignored;
  std::filesystem::create_directories(folder / "live", ignored);
  try {
    write_whole(folder / "live" / "end.json", Json{{"cause", cause}}.dump_any_bytes() + "\n");
  } catch (const Error&) {  // the run has failed already, and its cause is on the screen
  }
}

}  // namespace psring::cli
