#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <psring/cli/train/progress.h>
#include <psring/cli/train/progress_line.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>

namespace psring::cli {

Progress::Progress(std::string label, const Output& output) : label_(std::move(label)), output_(output) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail(ErrorKind::data, "cannot make a pipe: {}", std::strerror(errno));
  read_ = Fd(ends[0]);
  write_ = Fd(ends[1]);
  thread_ = std::jthread([this] { show(); });
}

Progress::~Progress() {
  write_ = Fd();
  thread_.join();
  if (drawn_ > 0) out::print("\r{:{}}\r", "", drawn_);
  std::fflush(stdout);
}

void Progress::show() {
  std::string pending;
  std::array<char, 4096> piece;
  for (ssize_t n = 0; (n = ::read(read_.get(), piece.data(), piece.size())) > 0;) {
    pending.append(piece.data(), static_cast<std::size_t>(n));
    for (std::size_t end = 0; (end = pending.find('\n')) != std::string::npos;) {
      draw(pending.substr(0, end));
      pending.erase(0, end + 1);
    }
  }
}

void Progress::draw(const std::string& line) {
  const std::optional<Json> parsed = Json::try_parse(line);
  if (!parsed) return;
  const Json& json = *parsed;
  RunProgress run{.step = json.value("step", 0.0), .steps = json.value("steps", 1.0)};
  const double took = json.value("seconds", 0.0);
  const double made = json.value("made", run.step);  // steps made by this run, which may continue another
  if (made > 0) run.seconds_left = took / made * (run.steps - run.step);
  if (took > 0) {
    run.samples_per_second = json.value("samples", 0.0) / took;
    run.tokens_per_second = json.value("tokens", 0.0) / took;
  }
  if (json.contains("loss") && json["loss"].is_number()) run.loss = json["loss"].get<double>();
  if (json.contains("evaluated")) run.evaluated = json["evaluated"].get<double>();
  if (output_.stalled()) return;  // the line would be out of date when it is read
  if (output_.is_terminal()) {
    // A line wider than the terminal would wrap, and "\\r" returns only to the start of the last part.
    const std::string bar = terminal_line(label_, run, output_.columns() - 1);
    out::print("\r{:<{}}", bar, drawn_);
    drawn_ = std::max(drawn_, bar.size());
  } else if (run.evaluated) {
    if (*run.evaluated >= next_evaluated_) out::print("{}\n", plain_line(label_, run));
    next_evaluated_ = std::max(next_evaluated_, *run.evaluated + 0.2);
  } else if (const double done = run.step / run.steps; done >= next_plain_) {
    out::print("{}\n", plain_line(label_, run));
    next_plain_ = done + 0.2;
  }
  if (!run.evaluated) next_evaluated_ = 0;
  std::fflush(stdout);
}

}  // namespace psring::cli
