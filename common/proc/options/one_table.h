#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <psring/common/proc/job.h>

namespace psring::options {

/// Returns the names that --table gives, in order. Throws usage unless the text is a list, separated by blanks, of
/// NAME:KEY=VALUE,...: each table once, and each key once, with a value that the option --table-KEY takes.
std::vector<std::string> named_tables(const std::string& text);

/// Returns the job's options with those that --table gives one table in place of --table-optimizer and the others.
/// Throws usage.
JobOptions options_of_table(const JobOptions& job, std::string_view table);

}  // namespace psring::options
