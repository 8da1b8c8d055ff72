#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <psring/cli/commands.h>
#include <psring/common/proc/job.h>

namespace psring::cli {

inline constexpr const char* kManifestFile = "run.json";

/// Writes run.json: the program's version, the command line, the seed, the job's options. After the roles have
/// reported, also their hosts and processors, by role and rank ("worker 0").
void write_manifest(const std::filesystem::path& folder, const JobOptions& job, const Invocation& invocation,
                    const std::map<std::string, std::string>& hosts = {},
                    const std::map<std::string, std::string>& processors = {});

/// Returns whether the roles' processors differ: kernels are chosen for the processor, so that equal bits are not
/// promised then.
bool are_mixed(const std::map<std::string, std::string>& processors);

}  // namespace psring::cli
