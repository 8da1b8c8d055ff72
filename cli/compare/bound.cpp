#include <array>
#include <utility>

#include <fmt/format.h>

#include <psring/cli/compare/bound.h>
#include <psring/common/base/text/names.h>
#include <psring/common/base/text/text.h>

namespace psring::cli {
namespace {

constexpr double kNoise = 0.25;       // processors that a quiet host uses itself
constexpr double kStraggler = 1.5;    // a straggler computes at least this many times as long as the others
constexpr double kDelayed = 0.1;      // share of time without a processor that makes processors the bound
constexpr double kComparable = 0.05;  // share of time without a processor that spoils a comparison of times

/// Returns whether there are more threads than processors.
bool oversubscribed(const StepFigures& step) {
  return static_cast<double>(step.threads) + step.others.value_or(0) > static_cast<double>(step.processors) + kNoise;
}

/// Returns whether workers wait for processors: as the kernel counts it, or else by the number of threads. A worker
/// that sleeps for half of the step needs no processor then.
bool crowded(const StepFigures& step) {
  if (step.sleeps && step.slowest_busy_s - step.slowest_delay_s >= step.step_s / 2) return false;
  return step.run_delay ? *step.run_delay >= kDelayed : oversubscribed(step);
}

/// Returns whether one worker computes for longer than the others, and not for lack of a processor.
bool has_straggler(const StepFigures& step) {
  const double longer = step.slowest_busy_s - step.others_busy_s;
  const bool delayed = step.run_delay ? step.slowest_delay_s >= longer / 2 : !step.sleeps && oversubscribed(step);
  return step.others_busy_s > 0 && step.slowest_busy_s >= kStraggler * step.others_busy_s && !delayed;
}

bool others_wait(const StepFigures& step) {
  return step.others_exposed_s >= (step.slowest_busy_s - step.others_busy_s) / 2;
}

std::string ms(double seconds) { return fmt::format("{:.{}f}", seconds * 1e3, seconds < 0.01 ? 2 : 1); }

/// "; floors in ms: processors 2.10, memory 0.50, compute 1.30"
std::string floors_text(const StepFigures& step) {
  std::string text;
  for (const Floor& floor : floors_of(step))
    text += fmt::format("{} {} {}", text.empty() ? "; floors in ms:" : ",", to_string(floor.bound), ms(floor.seconds));
  return text;
}

}  // namespace

std::string_view to_string(Bound bound) {
  static constexpr std::array<std::string_view, 9> kNames = {"compute", "slowest worker", "processors",
                                                             "memory",  "worker link",    "server link",
                                                             "server",  "latency",        "unknown"};
  return name_in(kNames, bound);
}

std::vector<Floor> floors_of(const StepFigures& step) {
  std::vector<Floor> floors;
  if (step.link_bytes_per_s) {
    floors.push_back({Bound::worker_link, step.worker_bytes / *step.link_bytes_per_s});
    floors.push_back({Bound::server_link, step.server_bytes / *step.link_bytes_per_s});
    if (step.server_bytes > step.worker_bytes) std::swap(floors[0], floors[1]);
  }
  if (step.others_busy_s > 0) floors.push_back({Bound::slowest_worker, step.slowest_busy_s});
  if (step.server_busy_s) floors.push_back({Bound::server, *step.server_busy_s});
  if (step.processors_used) floors.push_back({Bound::processors, step.processors_s()});
  if (step.memory_bytes_per_s) floors.push_back({Bound::memory, step.memory_bytes / *step.memory_bytes_per_s});
  floors.push_back({Bound::compute, step.busy_s()});
  return floors;
}

Bound bound_of(const StepFigures& step) {
  const std::vector<Floor> floors = floors_of(step);
  const auto is_named = [&](const Floor& floor) {
    switch (floor.bound) {
      case Bound::worker_link:
      case Bound::server_link:
      case Bound::server:
        return floor.seconds >= step.busy_s();  // what is shorter is hidden behind computing
      case Bound::slowest_worker:
        return has_straggler(step) && others_wait(step);
      case Bound::processors:
        return crowded(step) && !has_straggler(step);
      default:
        return true;
    }
  };
  for (const Floor& floor : floors)
    if (floor.seconds >= step.step_s / 2 && floor.seconds <= step.step_s && is_named(floor)) return floor.bound;
  const bool all_links_known = !step.sockets || step.link_bytes_per_s;
  return all_links_known && step.exposed_s >= step.step_s / 2 ? Bound::latency : Bound::unknown;
}

std::string disturbed_by(std::optional<double> others, std::size_t processors) {
  if (!others) return "the load of other programs is not known";
  if (*others <= kNoise) return "";
  return fmt::format("other programs took {:.1f} of {}", *others, count_of(processors, "processor"));
}

std::string not_comparable(const StepFigures& step) {
  std::string reasons;
  const auto add = [&](const std::string& reason) {
    if (!reason.empty()) reasons += (reasons.empty() ? "" : ", ") + reason;
  };
  if (step.threads > step.processors)
    add(fmt::format("{} on {}", count_of(step.threads, "thread"), count_of(step.processors, "processor")));
  add(disturbed_by(step.others, step.processors));
  if (step.run_delay.value_or(0) >= kComparable)
    add(fmt::format("a worker had no processor for {:.0f} % of its time", 100 * *step.run_delay));
  return reasons;
}

std::string because(Bound bound, const StepFigures& step) {
  const bool is_of_workers = bound == Bound::slowest_worker || bound == Bound::compute || bound == Bound::latency;
  if (has_straggler(step) && is_of_workers)
    return fmt::format("worker {} computes for {} ms a step, the others for {}; {}", step.slowest,
                       ms(step.slowest_busy_s), ms(step.others_busy_s),
                       others_wait(step) ? fmt::format("all wait for worker {}", step.slowest) : "nobody waits");
  const bool is_link = bound == Bound::worker_link || bound == Bound::server_link;
  if (is_link || (bound == Bound::latency && step.link_bytes_per_s)) {
    const double worker = step.worker_bytes / *step.link_bytes_per_s;
    const double server = step.server_bytes / *step.link_bytes_per_s;
    if (step.server_bytes == 0)
      return fmt::format("the link alone needs {} ms; the step took {}", ms(worker), ms(step.step_s));
    return fmt::format("a worker's link alone needs {} ms, a server's {}; the step took {}", ms(worker), ms(server),
                       ms(step.step_s));
  }
  const std::string part = step.busy_s() >= step.step_s / 2
                               ? fmt::format("computes for {} of {} ms", ms(step.busy_s()), ms(step.step_s))
                               : fmt::format("waits for {} of {} ms", ms(step.exposed_s), ms(step.step_s));
  switch (bound) {
    case Bound::memory:
      return fmt::format("moves {:.3g} MB through memory, {} of {} ms at {:.0f} GB/s", step.memory_bytes / 1e6,
                         ms(step.memory_bytes / *step.memory_bytes_per_s), ms(step.step_s),
                         *step.memory_bytes_per_s / 1e9);
    case Bound::server:
      return fmt::format("waits for {} of {} ms, a server works for {}", ms(step.exposed_s), ms(step.step_s),
                         ms(*step.server_busy_s));
    case Bound::processors:
      return fmt::format("{}; {} {} for {} ms of it", part, count_of(step.processors, "processor"),
                         step.processors == 1 ? "works" : "work", ms(step.processors_s()));
    case Bound::latency:
    case Bound::unknown:
      return part + floors_text(step);
    default:
      return part;
  }
}

std::string advice(Bound bound, const StepFigures& step, const Choices& choices) {
  switch (bound) {
    case Bound::compute:
      if (step.sleeps) return "--compute sets this time";
      if (step.gpus) return "a GPU sets this time: more of them, or a smaller --model";
      if (step.threads >= step.processors) return "all processors work: more of them, or a smaller --model";
      return fmt::format("uses {} of {} processors: more {}--threads", step.threads, step.processors,
                         choices.one_worker ? "" : "--workers or ");
    case Bound::slowest_worker:
      if (choices.bounded_staleness) return "ps-async does not wait for it";
      return "ps-async, or ps with --backup-workers 1, does not wait for it";
    case Bound::processors:
      if (step.threads > step.processors)
        return fmt::format("fewer --workers{}, or more processors", choices.servers > 1 ? " or --servers" : "");
      if (step.others.value_or(0) > kNoise) return "end the other programs";
      return "more processors";
    case Bound::memory:
      return "a larger --global-batch: the same for more samples";
    case Bound::server_link:
      if (choices.servers < choices.workers) return "more --servers";
      return "a larger --global-batch: fewer exchanges";
    case Bound::server:
      return fmt::format("{}--server-threads, or a cheaper --optimizer",
                         choices.servers < choices.workers ? "more --servers or " : "more ");
    case Bound::worker_link:
      if (choices.gathers_twice) return "--reshard-after-forward off";
      return "a larger --global-batch: fewer exchanges";
    case Bound::latency:
      if (!choices.overlap) return "--overlap on: exchange during backward";
      if (choices.prefetch == 0) return "--prefetch 1: parameters ahead of the pass that needs them";
      return "fewer, larger messages: --units block, a larger --model or --global-batch";
    case Bound::unknown:
      if (step.sockets && !step.link_bytes_per_s)
        return "--link, which has a known rate, shows whether it is the network";
      return "--trace shows the parts of a step";
  }
  return "";
}

}  // namespace psring::cli
