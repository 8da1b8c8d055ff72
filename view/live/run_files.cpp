#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/system/file.h>
#include <psring/view/live/run_files.h>

namespace psring::view {

/// A file that was cut and written again may be as long as before: the byte before the offset is then no newline.
bool FileFollower::is_same_file(int fd, const struct stat& status) const {
  if (status.st_ino != inode_ || status.st_dev != device_ || static_cast<std::uintmax_t>(status.st_size) < offset_)
    return false;
  char before = '\n';
  if (offset_ > 0 && !skipping_ && ::pread(fd, &before, 1, static_cast<off_t>(offset_ - 1)) != 1) return false;
  return before == '\n';
}

FileFollower::Step FileFollower::next() {
  Step step;
  const Fd fd(::open(file_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return step;
  const auto size = static_cast<std::uintmax_t>(status.st_size);
  if (inode_ == 0 || !is_same_file(fd.get(), status)) {
    step.replaced = inode_ != 0;
    inode_ = status.st_ino;
    device_ = status.st_dev;
    offset_ = size > tail_bytes_ ? size - tail_bytes_ : 0;
    skipping_ = offset_ > 0;
  }
  buffer_.resize(std::min<std::uintmax_t>(size - offset_, kMostBytes));
  const ssize_t got = ::pread(fd.get(), buffer_.data(), buffer_.size(), static_cast<off_t>(offset_));
  buffer_.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  step.behind = size - offset_ > kMostBytes;

  std::size_t begin = 0;
  for (std::size_t end; (end = buffer_.find('\n', begin)) != std::string::npos; begin = end + 1)
    if (!std::exchange(skipping_, false)) step.lines.push_back(std::string_view(buffer_).substr(begin, end - begin));
  if (begin == 0 && buffer_.size() == kMostBytes) {  // no writer of ours makes such a line
    begin = buffer_.size();
    skipping_ = true;
  }
  offset_ += begin;
  return step;
}

namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMemoryTail = std::uintmax_t{1} << 20;  ///< only the last line of each process is shown
constexpr std::uintmax_t kMostFileBytes = std::uintmax_t{8} << 20;
constexpr std::size_t kMostStatuses = 4096;
constexpr Nanoseconds kQuiet = std::chrono::seconds(15);  ///< a run that writes nothing for so long has ended

/// The time of the last change, in nanoseconds; 0 if the file is missing.
std::int64_t time_of(const fs::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return 0;
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

std::string text_of(const fs::path& file) {
  std::error_code error;
  if (fs::file_size(file, error) > kMostFileBytes || error) return "";
  return read_whole_if_present(file).value_or("");
}

std::optional<Json> object_of(const fs::path& file) {
  std::optional<Json> json = Json::try_parse(text_of(file));
  return json && json->is_object() ? json : std::nullopt;
}

}  // namespace

bool is_locked(const fs::path& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) return false;
  const std::string file = fmt::format("{:02x}:{:02x}:{}", major(status.st_dev), minor(status.st_dev), status.st_ino);
  std::ifstream locks("/proc/locks");  // 1: FLOCK  ADVISORY  WRITE 4711 08:01:12345 0 EOF
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, access, pid, place;
    words >> number >> kind >> advisory >> access >> pid >> place;
    if (kind == "FLOCK" && place == file) return true;
  }
  return false;
}

RunFiles::RunFiles(fs::path folder, Tokens tokens)
    : folder_(std::move(folder)),
      tokens_(std::move(tokens)),
      metrics_(folder_ / "metrics.jsonl"),
      memory_(folder_ / "memory.jsonl", kMemoryTail),
      recoveries_(folder_ / "recoveries.jsonl") {}

RunFiles::Progress RunFiles::look(Moment now) {
  bool changed = read_manifest();
  const FileFollower::Step metrics = metrics_.next();
  state_.add_metrics(metrics.lines, now);
  const FileFollower::Step memory = memory_.next();
  for (const std::string_view line : memory.lines) state_.add_memory(line, now);
  const FileFollower::Step recoveries = recoveries_.next();
  if (recoveries.replaced) state_.clear_recoveries();
  for (const std::string_view line : recoveries.lines) state_.add_recovery(line);
  changed = !metrics.lines.empty() || !memory.lines.empty() || !recoveries.lines.empty() || changed;
  changed = read_statuses(now) || changed;
  const bool behind = metrics.behind || memory.behind || recoveries.behind;
  if (!behind) changed = read_end() || changed;
  return behind ? Progress::behind : changed ? Progress::changed : Progress::unchanged;
}

bool RunFiles::read_manifest() {
  const fs::path file = folder_ / "run.json";
  const std::int64_t time = time_of(file);
  if (time == manifest_time_) return false;
  const std::optional<Json> manifest = object_of(file);
  if (!manifest) return false;
  try {
    const auto model = manifest->at("job").at("model").get<std::string>();
    state_.set_run(folder_.filename().string(), *manifest, tokens_(model));
  } catch (const JsonError&) {
    return false;
  }
  manifest_time_ = time;
  return true;
}

bool RunFiles::read_statuses(Moment now) {
  bool changed = false;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_ / "live", error)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".json") || !(name.starts_with("worker-") || name.starts_with("server-"))) continue;
    if (times_.size() >= kMostStatuses && !times_.contains(name)) continue;
    const std::int64_t time = time_of(entry.path());
    if (time == 0 || times_[name] == time) continue;
    times_[name] = time;
    state_.add_status(text_of(entry.path()), now);
    changed = true;
  }
  return changed;
}

/// summary.json ends a run well; the front door writes the cause of another end into live/end.json.
bool RunFiles::read_end() {
  std::optional<std::string> end;
  if (time_of(folder_ / "summary.json") != 0)
    end = "";
  else if (const std::optional<Json> cause = object_of(folder_ / "live" / "end.json"))
    end = cause->contains("cause") && cause->at("cause").is_string() ? cause->at("cause").get<std::string>()
                                                                     : "the cause is not known";
  else if (!is_in_progress())
    end = "the run has ended without a summary";
  if (end == state_.end()) return false;
  state_.set_end(end);
  return true;
}

/// A launcher holds the folder's lock. The roles of a job that was started by hand write every second.
bool RunFiles::is_in_progress() const {
  const auto is_fresh = [&](const char* name) {
    std::error_code error;
    const auto time = fs::last_write_time(folder_ / name, error);
    return !error && fs::file_time_type::clock::now() - time < kQuiet;
  };
  return manifest_time_ == 0 || is_fresh("memory.jsonl") || is_fresh("run.json") || is_locked(folder_);
}

}  // namespace psring::view
