#pragma once

#include <string>
#include <vector>

#include <psring/cli/plan/plan_crossings.h>
#include <psring/common/base/text/json.h>

namespace psring::cli {

/// The rows and the reason, as --json and the page hold them: times in seconds, sizes in bytes.
Json to_json(const PlanRows& plan, const options::Given& given);
/// {"hosts", "workers_per_host", "workers", "within", "between": {"bits_per_second", "delay_s"}}
Json to_json(const bench::Mesh& mesh);
/// {"sweep", "points": [{"value", "x", "mesh", "rows", ...}], "crossings": [...]}
Json to_json(const PlanSweep& sweep, const std::vector<PlanPoint>& points, const options::Given& given);

/// The options of a row's job, by name: those that were given and those that the plan chose.
options::Given job_options(const PlanRow& row, const options::Given& given);
/// A row's job as a file for psring train --config.
std::string config_of(const PlanRow& row, const bench::Mesh& mesh, const options::Given& given);

}  // namespace psring::cli
