#include <algorithm>
#include <cmath>

#include <psring/bench/cost/measured_passes.h>
#include <psring/common/base/error.h>

namespace psring::bench {
namespace {

/// By how much a pass is larger than a measured one.
double ratio(const LayerPass& pass, const TimedSize& measured) {
  if (measured.size > 0 && pass.flops > 0) return pass.flops / measured.size;
  return measured.elements > 0 ? pass.elements / measured.elements : 1;
}

}  // namespace

MeasuredPasses::MeasuredPasses(const worker::Model& model, std::size_t batch, DType type, std::size_t threads) {
  measure_layers(model, batch, type, passes_, threads);
}

double MeasuredPasses::seconds(const LayerPass& pass) const {
  const auto found = passes_.find(pass.line());
  if (found == passes_.end()) fail(ErrorKind::usage, "the time of {} was not measured", pass.line());
  const auto distance = [&](const TimedSize& measured) { return std::abs(std::log(ratio(pass, measured))); };
  double nearest = distance(found->second.front());
  for (const TimedSize& measured : found->second) nearest = std::min(nearest, distance(measured));
  double sum = 0;
  std::size_t count = 0;
  for (const TimedSize& measured : found->second) {
    if (distance(measured) > nearest) continue;
    sum += measured.seconds * ratio(pass, measured);
    ++count;
  }
  return sum / static_cast<double>(count);
}

double MeasuredPasses::step_s() const {
  double sum = 0;
  for (const auto& [line, passes] : passes_)
    for (const TimedSize& pass : passes) sum += pass.seconds;
  return sum;
}

}  // namespace psring::bench
