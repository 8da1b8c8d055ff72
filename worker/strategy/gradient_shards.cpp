#include <algorithm>
#include <utility>

#include <psring/worker/strategy/gradient_shards.h>

namespace psring::worker {

GradientShards::GradientShards(const Context& context, std::function<void(ring::Work&)> wait)
    : context_(context), wait_(std::move(wait)), whole_(context.layout.units.size()) {
  for (UnitId unit = 0; unit < context.layout.units.size(); ++unit)
    owned_.emplace_back(context.layout.partition(unit).share() * sizeof(float), Category::gradients, context.memory);
}

/// Two at once: one that is computed, one on its way. What a unit had in the micro-batch before has to be gone.
void GradientShards::open(UnitId unit) {
  while (flights_.size() > 1 || whole_[unit].size_bytes() > 0) land();
  whole_[unit] = Buffer(context_.layout.units[unit].elements * sizeof(float), Category::communication, context_.memory,
                        context_.arena);
  context_.units[unit].gradients = whole_[unit].as<float>();
}

void GradientShards::reduce(UnitId unit, Micro micro) {
  const Partition partition = context_.layout.partition(unit);
  ring::Parts parts;
  for (std::size_t owner = 0; owner < partition.owners(); ++owner) parts.push_back({partition.range(owner)});
  flights_.push_back({unit, micro.index == 0,
                      context_.group->reduce_scatter(whole_[unit].as<float>(), parts, ring::ReduceOp::Kind::mean)});
  context_.units[unit].gradients = {};
}

void GradientShards::land() {
  Flight& flight = flights_.front();
  wait_(flight.work);
  const Range range = context_.layout.partition(flight.unit).range(context_.rank);
  const std::span<const float> reduced = whole_[flight.unit].as<float>().subspan(range.begin, range.size());
  const std::span<float> sum = owned(flight.unit);
  if (flight.first)
    std::copy(reduced.begin(), reduced.end(), sum.begin());
  else
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += reduced[i];
  whole_[flight.unit] = Buffer();
  flights_.pop_front();
}

void GradientShards::drain() {
  while (!flights_.empty()) land();
}

void GradientShards::Replay::open(UnitId unit) {
  while (flights_.size() > 1 || std::find(flights_.begin(), flights_.end(), unit) != flights_.end()) {
    bytes_ -= of(flights_.front());
    flights_.pop_front();
  }
  bytes_ += of(unit);
}

}  // namespace psring::worker
