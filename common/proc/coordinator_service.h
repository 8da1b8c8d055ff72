#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <psring/common/base/clock.h>
#include <psring/common/net/key.h>
#include <psring/common/proc/coordinator.h>

namespace psring::net {

/// A job's coordinator at work: the state machine behind a ROUTER socket, which speaks CURVE with holders of
/// the job's key only. What members report lies in the run folder as soon as it has arrived: appended files
/// under their names, reports as reports/<role>-<rank>.json, and how many it refused itself as
/// reports/coordinator-0.json.
class CoordinatorService {
 public:
  struct Options {
    JobPlan plan;
    std::string listen = "127.0.0.1:0";  ///< ADDR:PORT; port 0: any
    std::filesystem::path run_folder;    ///< is made where it is missing
    std::function<void(Peer, const std::string&)> on_progress = [](Peer, const std::string&) {};
    /// At most one line a second, of connections that were refused.
    std::function<void(const std::string& line)> on_refusals = [](const std::string&) {};
    std::function<void(const std::string& line)> on_notice = [](const std::string&) {};
  };

  /// Binds; the join timeout starts now. Throws usage, naming --listen, where the address cannot be had, and
  /// data where the run folder cannot be made.
  CoordinatorService(Options options, const JobKey& key, const Clock& clock);
  ~CoordinatorService();

  /// Where members connect: ADDR:PORT with the port that was bound.
  const std::string& endpoint() const;

  /// Signals that this process gets: one is there to be taken when `fd` is readable.
  struct Signals {
    int fd = -1;  ///< -1: none are taken
    std::function<std::optional<int>()> take = [] { return std::optional<int>(); };
  };

  /// Until the job has ended and its members have left, or may no longer be waited for. The first signal ends the job
  /// after the step under way, the second at once. One thread, once.
  JobResult run() { return run(Signals()); }
  JobResult run(const Signals& signals);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace psring::net
