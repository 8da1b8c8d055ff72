#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <psring/common/base/registry.h>
#include <psring/worker/strategy/strategy_kind.h>

namespace psring::view {

/// Collects what runs recorded into one document, which a page shows:
///   {format, program, sources: [{name, kind, command, ended}], rows: [ROW]}
///   ROW: {label, source, ownership, compare, runs: [RUN]}; compare is the row of compare.json without its runs and its
///   job, or null
///   RUN: {folder, manifest, summary, workers, traffic, loss, evaluations, memory_log, recoveries}; manifest is
///   run.json, summary is summary.json without `roles` (null if the run did not end), workers and traffic are figures
///   of `roles`
/// A folder is one run's or a comparison's. `program` names who writes the document. Reads files, and nothing else.
/// Throws data, naming the folder, or the file and the line, if there is no run or a file is damaged.
nlohmann::ordered_json collect(const std::vector<std::filesystem::path>& folders,
                               const Registry<worker::StrategyKind>& strategies, const std::string& program);

}  // namespace psring::view
