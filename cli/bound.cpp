#include <algorithm>

#include <fmt/format.h>

#include <psring/cli/bound.h>

namespace psring::cli {
namespace {

constexpr double kNoise = 0.25;  // of a processor, that a quiet host takes for itself

bool is_link(Bound bound) { return bound == Bound::worker_link || bound == Bound::server_link; }

/// Who waits may well wait for a processor.
bool crowded(const StepFigures& step) {
  return static_cast<double>(step.threads) + step.others > static_cast<double>(step.processors) + kNoise;
}

std::string count(std::size_t number, std::string_view what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

std::string ms(double seconds) { return fmt::format("{:.{}f}", seconds * 1e3, seconds < 0.01 ? 2 : 1); }

}  // namespace

std::string_view to_string(Bound bound) {
  switch (bound) {
    case Bound::compute:
      return "compute";
    case Bound::memory:
      return "memory";
    case Bound::worker_link:
      return "worker link";
    case Bound::server_link:
      return "server link";
    case Bound::latency:
      return "latency";
  }
  return "?";
}

Bound bound_of(const StepFigures& step) {
  const double half = step.step_s / 2;
  const double link = std::max(step.link_s(step.worker_bytes), step.link_s(step.server_bytes));
  const Bound busier = step.server_bytes > step.worker_bytes ? Bound::server_link : Bound::worker_link;
  if (link >= half && link >= step.busy_s()) return busier;
  if (step.memory_s() >= half) return Bound::memory;
  if (step.busy_s() >= half || crowded(step)) return Bound::compute;
  return step.sockets && step.link_bytes_per_s == 0 ? busier : Bound::latency;
}

std::string because(Bound bound, const StepFigures& step) {
  if (step.link_bytes_per_s > 0) {
    const double worker = step.link_s(step.worker_bytes);
    const double server = step.link_s(step.server_bytes);
    std::string text = fmt::format("a worker's link is busy for {} ms", ms(worker));
    if (step.server_bytes > 0) text += fmt::format(", a server's {}", ms(server));
    text += fmt::format(" of {}", ms(step.step_s));
    const double most = std::max(worker, server);
    if (is_link(bound)) text += fmt::format(" ({:+.0f} %)", 100 * (step.step_s / most - 1));
    return text;
  }
  if (bound == Bound::memory)
    return fmt::format("moves {:.3g} MB through memory, {} of {} ms at {:.0f} GB/s", step.memory_bytes / 1e6,
                       ms(step.memory_s()), ms(step.step_s), step.memory_bytes_per_s / 1e9);
  std::string text = step.busy_s() >= step.step_s / 2
                         ? fmt::format("computes for {} of {} ms", ms(step.busy_s()), ms(step.step_s))
                         : fmt::format("waits for {} of {} ms", ms(step.exposed_s), ms(step.step_s));
  if (step.threads > step.processors)
    text += fmt::format(", {} on {}", count(step.threads, "thread"), count(step.processors, "processor"));
  if (step.others > kNoise) text += fmt::format(", other programs take {:.1f}", step.others);
  return text;
}

std::string advice(Bound bound, const StepFigures& step, const Choices& choices) {
  switch (bound) {
    case Bound::compute:
      if (step.threads > step.processors)
        return fmt::format("fewer --workers{}, or more processors", choices.servers > 1 ? " or --servers" : "");
      if (crowded(step)) return "end the other programs";
      if (step.threads == step.processors) return "all processors work: more of them, or a smaller --model";
      return fmt::format("uses {} of {} processors: more {}--threads", step.threads, step.processors,
                         choices.one_worker ? "" : "--workers or ");
    case Bound::memory:
      return "a larger --global-batch: the same for more samples";
    case Bound::server_link:
      if (choices.servers < choices.workers) return "more --servers";
      return "a larger --global-batch: fewer exchanges";
    case Bound::worker_link:
      if (choices.gathers_twice) return "--reshard-after-forward off";
      return "a larger --global-batch: fewer exchanges";
    case Bound::latency:
      if (!choices.overlap) return "--overlap on: exchange during backward";
      if (choices.prefetch == 0) return "--prefetch 1: parameters ahead of the pass that needs them";
      return "fewer, larger messages: --units block, a larger --model or --global-batch";
  }
  return "";
}

}  // namespace psring::cli
