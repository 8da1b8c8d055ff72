#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/number.h>
#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/optim/checkpoint/folder.h>

namespace psring::optim {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kName = "step-";
constexpr const char* kPartial = ".partial";

/// Returns the suffix of a run's unfinished checkpoints. `run` is "" for a run without an identity.
std::string partial_suffix(const std::string& run) { return run.empty() ? kPartial : "." + run + kPartial; }

std::optional<std::uint64_t> step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kName)) return std::nullopt;
  return read_number<std::uint64_t>(std::string_view(name).substr(kName.size()));
}

/// Calls `call` with an error_code. Throws data, naming the path, if the code is set.
void do_with(const fs::path& path, const char* doing, auto&& call) {
  std::error_code error;
  call(error);
  if (error) fail(ErrorKind::data, "{}: cannot {}: {}", path.string(), doing, error.message());
}

void move_folder(const fs::path& from, const fs::path& to) {
  do_with(to, "create", [&](auto& error) { fs::rename(from, to, error); });
}

void remove_folder(const fs::path& path) {
  do_with(path, "remove", [&](auto& error) { fs::remove_all(path, error); });
}

/// Returns a line that describes the damage, or nothing if the whole checkpoint can be read.
std::optional<std::string> damage_of(const fs::path& checkpoint) {
  try {
    Checkpoint(checkpoint).verify();
    return std::nullopt;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    return error.what();
  }
}

}  // namespace

fs::path CheckpointFolder::whole(std::uint64_t step) const { return folder_ / fmt::format("{}{:08}", kName, step); }
fs::path CheckpointFolder::partial(std::uint64_t step) const { return whole(step).string() + partial_suffix(run_); }

std::vector<CheckpointFolder::Entry> CheckpointFolder::complete() const {
  std::vector<Entry> entries;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error))
    if (const auto step = step_of(entry.path()); step && is_complete(entry.path()))
      entries.push_back({*step, entry.path()});
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.step < b.step; });
  return entries;
}

bool CheckpointFolder::is_complete(const fs::path& checkpoint) {
  std::error_code none;  // set if the file does not exist
  return fs::exists(checkpoint / kManifest, none);
}

bool CheckpointFolder::is_own(const Entry& entry) const { return run_of(entry.path).value_or("") == run_; }

std::optional<CheckpointFolder::Entry> CheckpointFolder::newest_own() const {
  const auto entries = complete();
  const auto own = std::find_if(entries.rbegin(), entries.rend(), [this](const Entry& entry) { return is_own(entry); });
  return own == entries.rend() ? std::nullopt : std::optional(*own);
}

bool CheckpointFolder::has_own(std::uint64_t step) const {
  return is_complete(whole(step)) && is_own({step, whole(step)});
}

std::optional<CheckpointFolder::Entry> CheckpointFolder::newer_of_another_run(std::uint64_t step) const {
  const auto entries = complete();
  if (entries.empty() || entries.back().step <= step || is_own(entries.back())) return std::nullopt;
  return entries.back();
}

void CheckpointFolder::create() const {
  do_with(folder_, "create", [&](auto& error) { fs::create_directories(folder_, error); });
  sync_folder((folder_ / "..").string());
}

void CheckpointFolder::clear(Leftovers scope) const {
  const std::string suffix = scope == Leftovers::own ? partial_suffix(run_) : kPartial;
  std::vector<fs::path> left;
  do_with(folder_, "read", [&](auto& error) {
    for (const auto& entry : fs::directory_iterator(folder_, error)) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(suffix) && step_of(name.substr(0, name.find('.')))) left.push_back(entry.path());
    }
  });
  for (const fs::path& path : left) remove_folder(path);
}

fs::path CheckpointFolder::aside(std::uint64_t step) const {
  fs::path path = partial(step);
  do_with(path, "create", [&](auto& error) { fs::create_directories(path, error); });
  return path;
}

void CheckpointFolder::commit(std::uint64_t step) const {
  sync_folder(partial(step).string());
  if (is_complete(whole(step)))
    fail(ErrorKind::data, "{}: exists already: does another run save into this folder?", whole(step).string());
  move_folder(partial(step), whole(step));
  sync_folder(folder_.string());
}

void CheckpointFolder::keep(std::size_t count, const fs::path& in_use) const {
  std::vector<Entry> entries = complete();
  if (entries.size() <= count) return;
  entries.resize(entries.size() - count);
  for (const Entry& entry : entries) {
    std::error_code none;  // set if the folders are not the same
    if (!in_use.empty() && fs::equivalent(entry.path, in_use, none)) continue;
    move_folder(entry.path, partial(entry.step));
    remove_folder(partial(entry.step));
  }
}

fs::path find_checkpoint(const fs::path& given) {
  check_folder(given.string());
  std::error_code none;  // set if nothing is found there
  const bool one = CheckpointFolder::is_complete(given);
  const fs::path canonical = fs::weakly_canonical(given, none);
  const auto entries = CheckpointFolder(one ? canonical.parent_path() : canonical).complete();
  if (!one && entries.empty()) fail(ErrorKind::data, "{}: the folder has no complete checkpoint", given.string());
  fs::path chosen = one ? canonical : entries.back().path;
  const auto damaged = damage_of(chosen);
  if (!damaged) return chosen;
  const auto step = step_of(chosen);
  const auto older = std::find_if(entries.rbegin(), entries.rend(), [&](const CheckpointFolder::Entry& entry) {
    return step && entry.step < *step && !damage_of(entry.path);
  });
  fail(ErrorKind::data, "{}; {}", *damaged,
       older == entries.rend() ? "no older checkpoint is complete" : older->path.string() + " is older and complete");
}

}  // namespace psring::optim
