#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/ioctl.h>
#include <unistd.h>

#include <psring/cli/progress.h>
#include <psring/common/base/error.h>

namespace psring::cli {

namespace {

std::size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

}  // namespace

Progress::Progress(std::string label) : label_(std::move(label)), terminal_(::isatty(STDOUT_FILENO) != 0) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail(ErrorKind::data, "cannot make a pipe: {}", std::strerror(errno));
  read_ = Fd(ends[0]);
  write_ = Fd(ends[1]);
  thread_ = std::jthread([this] { show(); });
}

Progress::~Progress() {
  write_ = Fd();
  thread_.join();
  if (drawn_ > 0) fmt::print("\r{:{}}\r", "", drawn_);
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
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (json.is_discarded()) return;
  const double step = json.value("step", 0.0);
  const double steps = json.value("steps", 1.0);
  const double took = json.value("seconds", 0.0);
  const double done = step / steps;
  const double made = json.value("made", step);  // by this run, which may continue another
  const double left = made > 0 ? took / made * (steps - step) : 0;
  const double rate = took > 0 ? json.value("samples", 0.0) / took : 0;
  std::string text = fmt::format("step {:.0f}/{:.0f}", step, steps);
  if (json.contains("loss") && json["loss"].is_number())
    text += fmt::format("  loss {:.4f}", json["loss"].get<double>());
  text += fmt::format("  {:.0f} samples/s a worker  {:.0f} s left", rate, left);
  if (terminal_) {
    constexpr int kBar = 24;
    const int full = static_cast<int>(done * kBar);
    // Longer than a line, "\\r" would only go back over its last part.
    const std::string bar = fmt::format("{} [{:#<{}}{:.<{}}] {}", label_, "", full, "", kBar - full, text)
                                .substr(0, terminal_columns() - 1);
    fmt::print("\r{:<{}}", bar, drawn_);
    drawn_ = std::max(drawn_, bar.size());
  } else if (done >= next_plain_) {
    fmt::print("{} {}\n", label_, text);
    next_plain_ = done + 0.2;
  }
  std::fflush(stdout);
}

}  // namespace psring::cli
