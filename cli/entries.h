#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <psring/cli/options.h>
#include <psring/cli/sweep.h>

namespace psring::cli {

/// What is compared: a strategy at a point of the sweep.
struct Entry {
  std::string label;  ///< "ps n=4 s=1"
  JobOptions job;
  std::shared_ptr<const worker::StrategyKind> kind;  ///< shared by all points of a strategy

  /// Does it promise the bits of `single` with as many virtual workers?
  bool exact() const {
    return kind->exact && job.consistency == "bsp" && job.backup_workers == 0 && job.compress == "none";
  }
};

/// All of them, strategy by strategy. Throws usage or data: what is wrong with the last is said before the first runs.
std::vector<Entry> make_entries(const JobFlags& flags, const std::vector<std::string>& strategies, Sweep& sweep,
                                const App& app);

/// The run of virtual workers that the job must end in the same bits as, or, where its strategy is not exact, is near
/// to: what changes the arithmetic stays, how bytes move does not. None for what is one process, or has no mean.
std::optional<JobOptions> reference_of(const Entry& entry);

}  // namespace psring::cli
