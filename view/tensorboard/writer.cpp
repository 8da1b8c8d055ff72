#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <sstream>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>
#include <psring/view/tensorboard/writer.h>

namespace psring::view {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kRecoveries = "recoveries.jsonl";
/// Bytes of metrics.jsonl that a second coordinator writes again: a minute of very short steps, at least.
constexpr std::uintmax_t kMostRepeatedBytes = std::uintmax_t{16} << 20;

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string text_of(const fs::path& file, std::uintmax_t begin) {
  if (is_missing(file)) return "";
  const InputFile in(file.string());
  std::string text(in.size_bytes() - std::min<std::uintmax_t>(begin, in.size_bytes()), '\0');
  in.read(begin, std::as_writable_bytes(std::span(text)));
  return text;
}

/// Returns when the file was last written, in seconds since 1970; now if that is not known.
double time_of(const fs::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return wall_time();
  return static_cast<double>(status.st_mtim.tv_sec) + 1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
}

/// TensorBoard reads the files of a folder in the order of their names, which begin with a time: returns the present
/// time, or a later one than all files in the folder have.
std::uint64_t next_time(const fs::path& folder) {
  auto time = static_cast<std::uint64_t>(wall_time());
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    std::uint64_t other = 0;
    if (name.starts_with(kPrefix) && std::istringstream(name.substr(kPrefix.size(), 10)) >> other)
      time = std::max(time, other + 1);
  }
  return time;
}

fs::path file_in(const fs::path& folder) {
  make_folder(folder);
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0 || host[0] == '\0') host = {"localhost"};
  return folder / fmt::format("{}{:010}.{}.{}.0", kPrefix, next_time(folder), host.data(), ::getpid());
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const Run& run, StepScalarsBuilder steps)
    : steps_(std::move(steps)),
      file_(file_in(run.folder / "tensorboard")),
      fd_(::open(file_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644)) {
  if (!fd_) fail(ErrorKind::data, "{}: {}", file_.string(), std::generic_category().message(errno));
  const double now = wall_time();
  write(version_record(now) + start_record(now, steps_.first_step(run.first_step)));
  write(steps_.take_complete());
}

TensorBoardWriter::TensorBoardWriter(const Run& run)
    : TensorBoardWriter(run, StepScalarsBuilder(run.workers, run.own_steps)) {}

TensorBoardWriter TensorBoardWriter::continue_part(const Run& run, std::uintmax_t begin) {
  StepScalarsBuilder steps(run.workers, run.own_steps);
  const fs::path metrics = run.folder / kMetrics;
  std::error_code none;
  const std::uintmax_t size = fs::exists(metrics, none) ? fs::file_size(metrics, none) : 0;
  const bool cut = size > begin + kMostRepeatedBytes;
  std::string text = text_of(metrics, cut ? size - kMostRepeatedBytes : begin);
  if (cut) text.erase(0, text.find('\n') + 1);
  steps.add_metrics(text, time_of(metrics));
  if (cut) steps.drop_first_steps();
  steps.add_recoveries(text_of(run.folder / kRecoveries, 0));
  return TensorBoardWriter(run, std::move(steps));
}

void TensorBoardWriter::take(const std::string& name, std::string_view lines) {
  if (name == kRecoveries) steps_.add_recoveries(lines);
  if (name != kMetrics) return;
  steps_.add_metrics(lines, wall_time());
  write(steps_.take_complete());
}

void TensorBoardWriter::finish() { write(steps_.take_rest()); }

void TensorBoardWriter::write(const std::vector<StepScalars>& steps) const {
  std::string records;
  for (const StepScalars& step : steps)
    records += step.scalars.empty() ? start_record(step.wall_time, step.step)
                                    : scalars_record(step.wall_time, step.step, step.scalars);
  write(records);
}

void TensorBoardWriter::write(std::string_view records) const {
  if (!write_all(fd_.get(), std::as_bytes(std::span(records))))
    fail(ErrorKind::data, "{}: cannot write: {}", file_.string(), std::generic_category().message(errno));
}

}  // namespace psring::view
