#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <psring/cli/train/progress_line.h>

namespace psring::cli {
namespace {

constexpr std::size_t kBar = 24;
constexpr std::size_t kLeastBar = 8;

std::string step_text(const RunProgress& progress) {
  return fmt::format("step {:.0f}/{:.0f}", progress.step, progress.steps);
}

std::string loss_text(const RunProgress& progress) {
  if (progress.evaluated) return fmt::format("  evaluated {:.0f} %", 100 * *progress.evaluated);
  return progress.loss ? fmt::format("  loss {:.4f}", *progress.loss) : "";
}

/// Empty for models that do not read text.
std::string perplexity_text(const RunProgress& progress) {
  if (!progress.loss || progress.evaluated || progress.tokens_per_second <= 0) return "";
  return fmt::format("  perplexity {:.1f}", std::exp(*progress.loss));
}

std::string rate_text(const RunProgress& progress) {
  if (progress.evaluated) return "";
  if (progress.tokens_per_second > 0) return fmt::format("  {:.0f} tokens/s a worker", progress.tokens_per_second);
  return fmt::format("  {:.0f} samples/s a worker", progress.samples_per_second);
}

std::string left_text(const RunProgress& progress) {
  return fmt::format("  {} left", duration_text(progress.seconds_left));
}

std::string bar(const RunProgress& progress, std::size_t width) {
  const double done = progress.steps > 0 ? std::clamp(progress.step / progress.steps, 0.0, 1.0) : 1;
  const auto full = static_cast<std::size_t>(done * static_cast<double>(width));
  return fmt::format("[{}{}] ", std::string(full, '#'), std::string(width - full, '.'));
}

}  // namespace

std::string duration_text(double seconds) {
  const double minutes = std::round(seconds / 60);
  if (seconds < 90 || !std::isfinite(seconds)) return fmt::format("{:.0f} s", seconds);
  if (minutes < 90) return fmt::format("{:.0f} min", minutes);
  return fmt::format("{:.0f} h {:.0f} min", std::floor(minutes / 60), std::fmod(minutes, 60));
}

std::string plain_line(const std::string& label, const RunProgress& progress) {
  return label + " " + step_text(progress) + loss_text(progress) + perplexity_text(progress) + rate_text(progress) +
         left_text(progress);
}

std::string terminal_line(const std::string& label, const RunProgress& progress, std::size_t columns) {
  const std::string step = step_text(progress);
  const std::string loss = loss_text(progress);
  const std::string perplexity = perplexity_text(progress);
  const std::string rate = rate_text(progress);
  const std::string left = left_text(progress);
  constexpr std::size_t kFrame = 3;  // the brackets, and the blank after them
  const auto room = [&](std::size_t taken) { return columns > taken ? columns - taken : 0; };
  const std::size_t head = label.size() + 1;
  for (const std::string& rest :
       {step + loss + perplexity + rate + left, step + loss + rate + left, step + loss + left})
    if (const std::size_t free = room(head + rest.size()); free >= kFrame + kLeastBar)
      return label + " " + bar(progress, std::min(kBar, free - kFrame)) + rest;
  for (const std::string& rest : {step + loss + left, step + left})
    if (head + rest.size() <= columns) return label + " " + rest;
  const std::string rest = step + left;
  return (label.substr(0, room(rest.size() + 1)) + " " + rest).substr(0, columns);
}

}  // namespace psring::cli
