#include <algorithm>
#include <cmath>
#include <utility>

#include <psring/common/base/error.h>
#include <psring/worker/compressor.h>

namespace psring::worker {

namespace {

std::size_t bytes_of(const optim::Codec& codec, const std::vector<Compressor::Part>& parts) {
  std::size_t bytes = 0;
  for (const Compressor::Part& part : parts) bytes += codec.bytes(part.range.size());
  return bytes;
}

std::size_t most_elements(const std::vector<Compressor::Part>& parts) {
  std::size_t most = 0;
  for (const Compressor::Part& part : parts) most = std::max(most, part.range.size());
  return most;
}

Buffer make_buffer(std::size_t bytes, Category category, MemoryLedger& ledger, Device* device) {
  return device != nullptr ? Buffer(bytes, category, ledger, *device) : Buffer(bytes, category, ledger);
}

}  // namespace

Compressor::Compressor(const optim::Codec& codec, bool feedback, const Layout& layout, const std::vector<Part>& parts,
                       std::uint64_t seed, std::size_t rank, MemoryLedger& ledger, Device* device)
    : codec_(codec),
      layout_(layout),
      seed_(seed),
      rank_(rank),
      ledger_(ledger),
      device_(device),
      encoded_(make_buffer(bytes_of(codec, parts), Category::communication, ledger, device)),
      read_(make_buffer(most_elements(parts) * sizeof(float), Category::communication, ledger, device)),
      places_(layout.units.size()) {
  if (feedback)
    residual_[0] = make_buffer(layout.trained_elements() * sizeof(float), Category::optimizer, ledger, device);
  std::size_t elements = 0;
  for (const UnitLayout& unit : layout.units) {
    residual_offsets_.push_back(elements);
    if (unit.trained) elements += unit.elements;
  }
  std::size_t offset = 0;
  for (const Part& part : parts) {
    places_[part.unit].push_back({part.range, offset});
    offset += codec.bytes(part.range.size());
  }
}

void Compressor::follow(std::function<optim::LossScaler()> scaler, bool skips) {
  scaler_ = std::move(scaler);
  if (!feedback() || !skips) return;
  residual_[1] = make_buffer(residual_[0].size_bytes(), Category::optimizer, ledger_, device_);
  if (device_ != nullptr) applier_ = optim::make_device_applier(*device_);
}

void Compressor::settle() {
  if (!feedback() || !scaler_) return;
  const optim::LossScaler scaler = scaler_();
  const bool ended = std::exchange(under_way_, false);
  if (ended && skips() && scaler.skipped() == steps_skipped_ && pending_is_finite()) settled_ = pending();
  steps_skipped_ = scaler.skipped();
  const float before = std::exchange(loss_scale_, scaler.scale());
  // Both are powers of two: the quotient is exact.
  if (before != 0 && before != loss_scale_) multiply(residual_[settled_].elements(DType::f32), loss_scale_ / before);
}

bool Compressor::pending_is_finite() {
  optim::ExactSum sum;
  const ConstElements values = residual_[pending()].elements(DType::f32);
  optim::add_square_sums(std::span(&values, 1), sum, applier_.get());
  return std::isfinite(sum.value());
}

const Compressor::Place& Compressor::find(std::size_t unit, std::size_t begin) const {
  const auto at = std::lower_bound(places_[unit].begin(), places_[unit].end(), begin,
                                   [](const Place& place, std::size_t b) { return place.range.begin < b; });
  check(at != places_[unit].end() && at->range.begin == begin, "unit {} has no part from {}", unit, begin);
  return *at;
}

ConstElements Compressor::encode(std::size_t unit, Range range, std::uint64_t step, std::size_t micro,
                                 ConstElements gradient) {
  const optim::GradientId id = this->id(unit, range.begin, step, micro, rank_);
  const Elements out = encoded_.elements(DType::u8).subspan(find(unit, range.begin).offset, codec_.bytes(range.size()));
  if (!feedback()) {
    codec_.encode(gradient, id, out);
    return out;
  }
  if (!under_way_ || step != step_) settle();
  under_way_ = true;
  step_ = step;
  const Elements kept = residual(unit, pending()).part(range);
  if (skips() && micro == 0) copy(residual(unit).part(range), kept);
  add(kept, gradient);
  codec_.encode(kept, id, out);
  codec_.decode(out, id, read(range));
  clear_padding(layout_.units[unit], range, read(range));
  subtract(kept, read(range));
  return out;
}

ConstElements Compressor::encode(std::size_t unit, std::uint64_t step, std::size_t micro, ConstElements gradient) {
  const std::vector<Place>& places = places_[unit];
  std::size_t bytes = 0;
  for (const Place& place : places) bytes += encode(unit, place.range, step, micro, gradient.part(place.range)).size();
  return encoded().subspan(places.front().offset, bytes);
}

void Compressor::mean(std::size_t unit, Range range, std::uint64_t step, std::size_t micro,
                      std::span<const Written> all, Elements out) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Elements into = i == 0 ? out : read(range);
    codec_.decode(all[i].bytes, id(unit, range.begin, step, micro, all[i].worker), into);
    if (i > 0) add(out, into);
  }
  clear_padding(layout_.units[unit], range, out);
  multiply(out, 1.0F / static_cast<float>(all.size()));
}

Elements Compressor::residual(std::size_t unit, std::size_t which) {
  check(feedback() && layout_.units[unit].trained, "nothing is kept of unit {}", unit);
  return residual_[which].elements(DType::f32).subspan(residual_offsets_[unit], layout_.units[unit].elements);
}

}  // namespace psring::worker
