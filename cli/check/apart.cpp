#include <span>
#include <utility>

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <psring/cli/check/apart.h>
#include <psring/cli/check/descendants.h>
#include <psring/common/base/file.h>

namespace psring::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kShown = 2048;  ///< bytes of each end of an output that is too long to be shown

std::string read_part(const InputFile& file, std::uintmax_t begin, std::uintmax_t bytes) {
  std::string text(bytes, '\0');
  file.read(begin, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string read_ends(const fs::path& path) {
  if (is_missing(path)) return "";
  const InputFile file(path.string());
  const std::uintmax_t bytes = file.size_bytes();
  if (bytes <= 2 * kShown) return read_part(file, 0, bytes);
  return fmt::format("{}\n[… {} bytes …]\n{}", read_part(file, 0, kShown), bytes - 2 * kShown,
                     read_part(file, bytes - kShown, kShown));
}

}  // namespace

Apart run_apart(const std::string& name, std::vector<std::string> command, const fs::path& folder, Nanoseconds limit,
                SignalWatch& signals) {
  Apart apart;
  {
    const Descendants descendants;
    const SystemClock clock;
    LocalCluster processes(folder, clock);
    processes.start(name, std::move(command));
    const int wake = signals.fd();
    apart.exit = processes.next_exit(clock.now() + limit, std::span(&wake, 1));
    if (const auto signal = signals.take()) throw Interrupted{*signal};
  }  // kills what still runs: nobody writes the log any more
  apart.printed = read_ends(folder / (name + ".log"));
  return apart;
}

void limit_output() {
  ::dup2(STDOUT_FILENO, STDERR_FILENO);  // the log itself, which the limit holds for
  const rlimit limit{kMostPrinted, kMostPrinted};
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

}  // namespace psring::cli
