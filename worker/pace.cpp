#include <charconv>

#include <psring/common/base/text/error.h>
#include <psring/worker/pace.h>

namespace psring::worker {

std::optional<Nanoseconds> parse_compute(const std::string& text) {
  if (text == "model") return std::nullopt;
  constexpr std::string_view kSleep = "sleep:";
  double value = 0;
  if (text.starts_with(kSleep)) {
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + kSleep.size(), end, value);
    const std::string_view unit(rest, end);
    const double factor = unit == "s" ? 1 : unit == "ms" ? 1e-3 : unit == "us" ? 1e-6 : 0;
    if (error == std::errc{} && value * factor > 0 && value * factor < 3600) return from_seconds(value * factor);
  }
  fail(ErrorKind::usage, "--compute: expected model, or a time such as sleep:50ms, got '{}'", text);
}

Pace::Pace(const JobOptions& job, std::size_t rank, const Clock& clock, std::size_t layer_passes)
    : clock_(clock),
      step_(parse_compute(job.compute)),
      layer_passes_(layer_passes),
      rng_({.seed = job.seed, .purpose = Purpose::pace, .rank = static_cast<std::uint16_t>(rank)}) {
  for (const Fault& fault : faults_of(job.fault, {net::Role::worker, static_cast<std::uint32_t>(rank)})) {
    if (fault.kind == Fault::Kind::slow) slow_ *= fault.factor;
    if (fault.kind == Fault::Kind::jitter) jitter_ = fault.factor;
  }
}

void Pace::begin_step(std::uint64_t step) {
  factor_ = slow_;
  if (jitter_ > 0) factor_ *= 1 + jitter_ * (2 * static_cast<double>(rng_.uniform(step)) - 1);
}

}  // namespace psring::worker
