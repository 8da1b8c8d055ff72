#pragma once

#include <optional>
#include <string>
#include <vector>

#include <psring/cli/options/language.h>
#include <psring/cli/plan/plan_crossings.h>

namespace psring::cli {

// The plan as text for a terminal, in either language.

/// The table of the first `top` rows, and its notes.
std::string plan_table(const PlanRows& plan, const bench::Mesh& mesh, const std::optional<double>& limit,
                       std::size_t top, Language language);
/// Why the first row beats the second, in figures; if both are equal, also why it beats the next one that is not. "" if
/// there is no second.
std::string plan_reason(const PlanRows& plan, Language language);
/// Names the machine whose messages the plan counts with, if no fit was given; else "".
std::string costs_note(const PlanRows& plan, Language language);
/// The best row at each value of a sweep, and where the lead changes.
std::string sweep_table(const PlanSweep& sweep, const std::vector<PlanPoint>& points, Language language);
/// The name of what bounds a step.
std::string bound_name(const std::string& bound, Language language);

}  // namespace psring::cli
