#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/proc/local_cluster.h>

namespace psring::cli {

/// The live view of a run in progress: `psring watch` as a process of its own with low priority, which ends with this
/// process at the latest. Belongs to the main thread.
class LiveView {
 public:
  /// Starts the view, and prints its address. Throws usage, naming --live, if nobody can listen at `listen`.
  LiveView(const std::filesystem::path& folder, const std::string& listen, bool next_part);

  /// Prints a line if the view has ended by itself: the job goes on. Returns the descriptors that are readable when
  /// this call has news.
  std::vector<int> tend();
  /// The files of the run are complete: waits until all viewers have the last state, for a few seconds at most.
  void end();

 private:
  const SystemClock clock_;
  LocalCluster cluster_;
  bool ended_ = false;
};

/// Throws usage, naming --live, if nobody can listen at `listen` now.
void check_live_address(const std::string& listen);

/// Writes why a run ended into live/end.json, for those who watch it. Does nothing if the file cannot be written.
void record_end(const std::filesystem::path& folder, const std::string& cause);

}  // namespace psring::cli
