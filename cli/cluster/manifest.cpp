#include <algorithm>

#include <version.h>

#include <psring/cli/cluster/manifest.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/text/json.h>

namespace psring::cli {

namespace fs = std::filesystem;

bool are_mixed(const std::map<std::string, std::string>& processors) {
  return std::any_of(processors.begin(), processors.end(),
                     [&](const auto& role) { return role.second != processors.begin()->second; });
}

void write_manifest(const fs::path& folder, const JobOptions& job, const Invocation& invocation,
                    const std::map<std::string, std::string>& hosts,
                    const std::map<std::string, std::string>& processors) {
  Json manifest = {{"version", kVersion},
                   {"commit", kCommit},
                   {"command", invocation.words},
                   {"seed", job.seed},
                   {"hosts", hosts},
                   {"processors", processors},
                   {"mixed_processors", are_mixed(processors)},
                   {"link", job.link.empty() ? Json() : Json(job.link)},
                   {"job", Json::parse(psring::to_json(job))}};
  // The manifest that is replaced holds the launch, the load of other programs, and the run's identity.
  const std::string replaced = read_whole_if_present(folder / kManifestFile).value_or("");
  if (const std::optional<Json> before = Json::try_parse(replaced)) {
    for (const char* name : {"launch", "other_programs"})
      if (before->contains(name)) manifest[name] = before->at(name);
    if (job.run_id.empty() && before->contains("job"))
      manifest["job"]["run_id"] = before->at("job").value("run_id", "");
  }
  write_whole((folder / kManifestFile).string(), manifest.dump(2) + "\n");
}

}  // namespace psring::cli
