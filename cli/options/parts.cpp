#include <cstdio>
#include <system_error>

#include <psring/cli/options/parts.h>
#include <psring/cli/train/summary.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/optim/checkpoint/folder.h>

namespace psring::cli {

namespace fs = std::filesystem;

namespace {

constexpr const char* kParts = "parts";
constexpr const char* kLaunch = "launch";
constexpr const char* kOtherLoad = "other_programs";
constexpr const char* kMetrics = "metrics.jsonl";

Json manifest_of(const fs::path& folder) {
  const fs::path file = folder / kManifestFile;
  check_folder(folder.string());
  const std::optional<std::string> text = read_whole_if_present(file);
  if (!text) fail(ErrorKind::data, "{}: holds no run ({} is missing)", folder.string(), kManifestFile);
  std::optional<Json> json = Json::try_parse(*text);
  if (!json || !json->contains("job")) fail(ErrorKind::data, "{}: not the manifest of a run", file.string());
  return std::move(*json);
}

void record_in_manifest(const fs::path& folder, const char* name, Json value) {
  Json json = manifest_of(folder);
  json[name] = std::move(value);
  write_whole(folder / kManifestFile, json.dump(2) + "\n");
}

void move_if_there(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (!fs::exists(from, error)) return;
  fs::rename(from, to, error);
  if (error) fail(ErrorKind::data, "{}: cannot move to {}: {}", from.string(), to.string(), error.message());
}

/// Removes an incomplete last line, which a killed process may have left and to which the next part's first line would
/// be appended.
void drop_half_line(const fs::path& file) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(file, error);
  if (error || size == 0) return;
  const InputFile in(file.string());
  for (std::uintmax_t end = size; end > 0; --end) {
    char last = 0;
    in.read(end - 1, std::as_writable_bytes(std::span(&last, 1)));
    if (last != '\n') continue;
    if (end < size) fs::resize_file(file, end, error);
    return;
  }
  fs::resize_file(file, 0, error);
}

/// Throws data if a file of a checkpoint cannot be read for a reason that does not depend on its contents.
void check_access(const fs::path& checkpoint) {
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    const InputFile file(entry.path().string());
    std::byte first[1];
    if (file.size_bytes() > 0) file.read(0, first);
  }
}

}  // namespace

JobOptions job_of_run(const fs::path& folder) {
  JobOptions job = job_from_json(manifest_of(folder).at("job").dump());
  job.out = folder.string();
  return job;
}

void record_launch(const fs::path& folder, const LaunchRecord& record) {
  record_in_manifest(folder, kLaunch,
                     {{"nodes", record.nodes},
                      {"listen", record.listen},
                      {"key", record.key_file},
                      {"slurm_job", record.slurm_job},
                      {"same_build", record.same_build}});
}

void record_other_load(const fs::path& folder, std::optional<double> processors) {
  record_in_manifest(folder, kOtherLoad, processors ? Json(*processors) : Json());
}

std::optional<double> other_load_of_run(const fs::path& folder) {
  const Json manifest = manifest_of(folder);
  if (!manifest.contains(kOtherLoad) || manifest[kOtherLoad].is_null()) return std::nullopt;
  return manifest[kOtherLoad].get<double>();
}

LaunchRecord launch_of_run(const fs::path& folder) {
  const Json json = manifest_of(folder);
  if (!json.contains(kLaunch))
    fail(ErrorKind::usage, "{}: was not started by train, but by hand: start it again as before, with --resume {}",
         folder.string(), folder.string());
  const Json& launch = json[kLaunch];
  return {launch.value("nodes", std::size_t{1}), launch.value("listen", std::string("127.0.0.1:0")),
          launch.value("key", std::string()), launch.value("slurm_job", std::string()),
          launch.value("same_build", false)};
}

std::size_t begin_next_part(const fs::path& folder) {
  std::error_code error;
  std::size_t number = 0;
  while (fs::exists(folder / kParts / std::to_string(number), error)) ++number;
  const fs::path before = folder / kParts / std::to_string(number);
  make_folder(before);
  for (const char* name :
       {"job-anew.json", "reports", "recoveries.jsonl", "memory.jsonl", "summary.json", "trace.json", "events", "live"})
    move_if_there(folder / name, before / name);
  fs::copy_file(folder / kManifestFile, before / kManifestFile, error);
  drop_half_line(folder / kMetrics);
  return number + 1;
}

fs::path newest_whole_checkpoint(const JobOptions& job, Damaged damaged) {
  const std::string folder = job.checkpoint_folder();
  if (folder.empty() && job.resume.empty())
    fail(ErrorKind::data, "{}: has no checkpoint to continue from, because --checkpoint-every was not given", job.out);
  auto entries = optim::CheckpointFolder(folder, job.run_id).complete();
  for (; !entries.empty(); entries.pop_back()) {
    const fs::path& path = entries.back().path;
    check_access(path);
    if (optim::run_of(path).value_or(job.run_id) != job.run_id) continue;
    try {
      optim::Checkpoint(path).verify();
      return path;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      out::print("{}; this checkpoint is skipped\n", error.what());
      if (damaged == Damaged::set_aside) move_if_there(path, path.string() + ".damaged");
    }
  }
  if (!job.resume.empty()) return job.resume;
  fail(ErrorKind::data, "{}: the folder has no complete checkpoint", folder);
}

fs::path checkpoint_at(const fs::path& given) {
  std::error_code no_run;
  if (fs::exists(given / kManifestFile, no_run))
    return newest_whole_checkpoint(job_of_run(fs::absolute(given)), Damaged::leave);
  return optim::find_checkpoint(given);
}

}  // namespace psring::cli
