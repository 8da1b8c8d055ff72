#include <algorithm>

#include <psring/common/proc/job.h>
#include <psring/worker/exchange/plan.h>

namespace psring::worker {

void Plan::initialise(UnitId unit, Range range, std::span<float> out) const {
  psring::initialise(layout.units[unit], range, job.seed, out);
  if (initial) initial(unit, range, out);
}

void Plan::initialise(UnitId unit, Range range, Elements out) const {
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

Buffer World::buffer(std::size_t bytes, Category category, Arena* host_arena) const {
  return device != nullptr ? Buffer(bytes, category, memory, *device) : Buffer(bytes, category, memory, host_arena);
}

Buffer World::staging(std::size_t bytes) const {
  return stages() ? Buffer(bytes, Category::staging, memory, arena) : Buffer();
}

Arena* arena_for_codes(const Plan& plan, const World& world, std::size_t bytes) {
  return bytes <= plan.layout.gradient_bytes() ? world.arena : nullptr;
}

}  // namespace psring::worker
