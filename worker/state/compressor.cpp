#include <algorithm>

#include <psring/common/base/text/error.h>
#include <psring/worker/state/compressor.h>

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

}  // namespace

Compressor::Compressor(const optim::Codec& codec, ErrorFeedback* feedback, const Layout& layout,
                       const std::vector<Part>& parts, std::uint64_t seed, std::size_t rank, MemoryLedger& ledger,
                       Device* device)
    : codec_(codec),
      layout_(layout),
      seed_(seed),
      rank_(rank),
      feedback_(feedback),
      encoded_(make_buffer(bytes_of(codec, parts), Category::communication, ledger, device)),
      read_(make_buffer(most_elements(parts) * sizeof(float), Category::communication, ledger, device)),
      places_(layout.units.size()) {
  std::size_t offset = 0;
  for (const Part& part : parts) {
    places_[part.unit].push_back({part.range, offset});
    offset += codec.bytes(part.range.size());
  }
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
  if (feedback_ == nullptr) {
    codec_.encode(gradient, id, out);
    return out;
  }
  const Elements kept = feedback_->add(unit, range, step, micro, gradient);
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

}  // namespace psring::worker
