#include <algorithm>

#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

void Context::initialise(UnitId unit, Range range, std::span<float> out) const {
  psring::initialise(layout.units[unit], range, seed, out);
  if (initial) initial(unit, range, out);
}

void Context::initialise(UnitId unit, Range range, Elements out) const {
  if (out.processor() != nullptr) {
    std::vector<std::byte> bytes(out.size_bytes());
    const Elements here(bytes.data(), out.size(), out.type());
    initialise(unit, range, here);
    return copy(here, out);
  }
  if (out.type() == DType::f32) return initialise(unit, range, out.as<float>());
  constexpr std::size_t kBlock = std::size_t{64} << 10;
  std::vector<float> block(std::min(kBlock, range.size()));
  for (std::size_t begin = 0; begin < range.size(); begin += kBlock) {
    const Range part{begin, std::min(begin + kBlock, range.size())};
    const std::span<float> values = std::span(block).first(part.size());
    initialise(unit, {range.begin + part.begin, range.begin + part.end}, values);
    narrow(values, out.part(part));
  }
}

Buffer Context::buffer(std::size_t bytes, Category category, Arena* of_host) const {
  return device != nullptr ? Buffer(bytes, category, memory, *device) : Buffer(bytes, category, memory, of_host);
}

Buffer Context::staged_buffer(std::size_t bytes) const {
  return stages() ? Buffer(bytes, Category::staging, memory, arena) : Buffer();
}

}  // namespace psring::worker
