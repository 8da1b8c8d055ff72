#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <psring/cli/app.h>
#include <psring/cli/compare/sweep.h>
#include <psring/common/proc/options/values.h>
#include <psring/worker/registries.h>

namespace psring::cli {

/// A row of the comparison: a strategy at a point of the sweep.
struct Entry {
  std::string label;  ///< "ps n=4 s=1"
  JobOptions job;
  std::shared_ptr<const worker::StrategyKind> kind;  ///< shared by all points of a strategy
  options::Given given = {};                         ///< the options that the job was made of

  /// Returns whether the entry promises the bits of `single` with the same number of virtual workers.
  bool exact() const {
    return kind->exact && job.consistency == "bsp" && job.row_consistency() == "bsp" && job.backup_workers == 0 &&
           job.compress == "none";
  }
};

/// Makes all entries, strategy by strategy, and checks every one of them. `loopback`: the jobs stay on this host.
/// Throws usage or data.
std::vector<Entry> make_entries(const options::Given& given, const std::vector<std::string>& strategies, Sweep& sweep,
                                const App& app, bool loopback = true);

/// Returns those of a command's default strategies that train the model's tables; all if it has none. Throws usage.
std::vector<std::string> defaults_for_tables(std::vector<std::string> strategies, const options::Given& given,
                                             const App& app);

/// Throws usage, naming the data that fit, if the model has tables and no data are given: the rows depend on their
/// keys.
void require_data_for_tables(const options::Given& given, const App& app);

/// Returns the job as one process runs it: without servers, and with the defaults of the options of an exchange.
JobOptions one_process(const JobOptions& job);

/// Returns the job of virtual workers whose result must have the same bits, or similar values if the strategy is not
/// exact. Options of the exchange have their defaults in it. Returns nullopt for one process, and for an update that is
/// not a mean.
std::optional<JobOptions> reference_of(const Entry& entry);

}  // namespace psring::cli
