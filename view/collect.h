#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <psring/common/base/text/json.h>
#include <psring/common/base/text/registry.h>
#include <psring/worker/registries.h>

namespace psring::view {

/// Collects what runs recorded into one document, which a page shows:
///   {format, program, sources: [{name, kind, command, ended}], rows: [ROW], sweeps}
///   ROW: {label, source, ownership, compare, next_command, runs: [RUN]}; compare is the row of compare.json without
///   its runs and its job, or null; next_command is there if compare is RUN: {folder, manifest, summary, workers,
///   traffic, retransmitted, tables, formulas, loss, staleness, lag, evaluations, memory_log, recoveries, trace};
///   manifest is run.json, summary is summary.json without `roles` (null if the run did not end), workers, traffic and
///   retransmitted are figures of `roles`, formulas are those of `summary.bytes`, an item each: {text, values, a_step,
///   steps}, or null if they do not give the prediction
/// A folder is one run's or a comparison's. `program` names who writes the document. Reads files, and nothing else.
/// Throws data, naming the folder, or the file and the line, if there is no run or a file is damaged.
Json collect(const std::vector<std::filesystem::path>& folders, const worker::Registries& registries,
             const std::string& program);

}  // namespace psring::view
