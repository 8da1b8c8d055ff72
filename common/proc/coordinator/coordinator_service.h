#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <psring/common/base/clock.h>
#include <psring/common/net/key.h>
#include <psring/common/proc/coordinator/coordinator.h>

namespace psring::net {

/// Runs a job's coordinator: the state machine behind a ROUTER socket, which speaks CURVE with holders of the job's key
/// only. Members' appends and reports are written to the run folder as soon as they arrive: appended files under their
/// names, reports as reports/<role>-<rank>.json. The number of refused connections is written to
/// reports/coordinator-0.json.
class CoordinatorService {
 public:
  struct Options {
    JobPlan plan;
    std::string listen = "127.0.0.1:0";  ///< ADDR:PORT; port 0: any
    std::filesystem::path run_folder;    ///< created if missing
    std::function<void(Peer, const std::string&)> on_progress = [](Peer, const std::string&) {};
    /// Called with a line about refused connections, at most once a second.
    std::function<void(const std::string& line)> on_refusals = [](const std::string&) {};
    std::function<void(const std::string& line)> on_notice = [](const std::string&) {};
    /// Called after bytes were appended to a file of the run folder. An error ends the job.
    std::function<void(const std::string& file, std::string_view bytes)> on_append = [](const std::string&,
                                                                                        std::string_view) {};
  };

  /// Binds; the join timeout starts now. Throws usage, naming --listen, if the address cannot be bound, and data if the
  /// run folder cannot be created.
  CoordinatorService(Options options, const JobKey& key, const Clock& clock);
  ~CoordinatorService();

  /// The address for members to connect to: ADDR:PORT with the port that was bound.
  const std::string& endpoint() const;
  /// The size of a file of the run folder before the job's coordinators appended to it.
  std::uintmax_t size_before_appends(const std::string& file) const;

  /// The signals of this process: when `fd` is readable, `take` returns the next.
  struct Signals {
    int fd = -1;  ///< -1: signals are not taken
    std::function<std::optional<int>()> take = [] { return std::optional<int>(); };
  };

  /// Runs until the job has ended, and its members have left or the wait for them is over. The first signal ends the
  /// job after the current step, the second request at once. Call it once, from one thread.
  JobResult run() { return run(Signals()); }
  JobResult run(const Signals& signals);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace psring::net
