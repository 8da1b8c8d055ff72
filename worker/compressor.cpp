#include <algorithm>

#include <psring/common/base/error.h>
#include <psring/worker/compressor.h>

namespace psring::worker {

namespace {

std::size_t bytes_of(const optim::Codec& codec, const std::vector<Compressor::Part>& parts) {
  std::size_t bytes = 0;
  for (const Compressor::Part& part : parts) bytes += codec.bytes(part.range.size());
  return bytes;
}

}  // namespace

Compressor::Compressor(const optim::Codec& codec, bool feedback, const Layout& layout, const std::vector<Part>& parts,
                       std::uint64_t seed, std::size_t rank, MemoryLedger& ledger)
    : codec_(codec),
      layout_(layout),
      seed_(seed),
      rank_(rank),
      residual_(feedback ? layout.trained_elements() * sizeof(float) : 0, Category::optimizer, ledger),
      encoded_(bytes_of(codec, parts), Category::communication, ledger),
      places_(layout.units.size()) {
  std::size_t elements = 0;
  for (const UnitLayout& unit : layout.units) {
    residual_offsets_.push_back(elements);
    if (unit.trained) elements += unit.elements;
  }
  std::size_t offset = 0;
  std::size_t most = 0;
  for (const Part& part : parts) {
    places_[part.unit].push_back({part.range.begin, offset});
    offset += codec.bytes(part.range.size());
    most = std::max(most, part.range.size());
  }
  if (feedback) read_.resize(most);
}

std::size_t Compressor::offset_of(std::size_t unit, std::size_t begin) const {
  const auto at = std::lower_bound(places_[unit].begin(), places_[unit].end(), begin,
                                   [](const Place& place, std::size_t b) { return place.begin < b; });
  check(at != places_[unit].end() && at->begin == begin, "unit {} has no part from {}", unit, begin);
  return at->offset;
}

std::span<const std::byte> Compressor::encode(std::size_t unit, Range range, std::uint64_t step, std::size_t micro,
                                              std::span<const float> gradient) {
  const optim::GradientId id = this->id(unit, range.begin, step, micro, rank_);
  const auto out = encoded_.bytes().subspan(offset_of(unit, range.begin), codec_.bytes(range.size()));
  if (!feedback()) {
    codec_.encode(gradient, id, out);
    return out;
  }
  const auto residual = residual_.as<float>().subspan(residual_offsets_[unit] + range.begin, range.size());
  for (std::size_t i = 0; i < residual.size(); ++i) residual[i] += gradient[i];
  codec_.encode(residual, id, out);
  const std::span read(read_.data(), range.size());
  codec_.decode(out, id, read);
  clear_padding(layout_.units[unit], range, read);
  for (std::size_t i = 0; i < residual.size(); ++i) residual[i] -= read[i];
  return out;
}

std::span<float> Compressor::residual(std::size_t unit) {
  check(feedback() && layout_.units[unit].trained, "nothing is kept of unit {}", unit);
  return residual_.as<float>().subspan(residual_offsets_[unit], layout_.units[unit].elements);
}

}  // namespace psring::worker
