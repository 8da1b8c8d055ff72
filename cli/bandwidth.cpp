#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <vector>

#include <psring/cli/bandwidth.h>
#include <psring/common/base/clock.h>
#include <psring/common/base/parallel.h>

namespace psring::cli {
namespace {

constexpr std::size_t kLeast = std::size_t{1} << 20;
constexpr std::size_t kMost = std::size_t{256} << 20;  // beyond all caches: larger sets are as fast

/// The best of some passes: what disturbs makes one slower, never faster.
double measure(std::size_t bytes, std::size_t threads) {
  Parallel team(threads);
  std::vector<char> memory(bytes, 1);
  const std::size_t half = bytes / 2;
  const auto copy = [&](Range range) { std::memcpy(&memory[half + range.begin], &memory[range.begin], range.size()); };
  const SystemClock clock;
  const Moment end = clock.now() + std::chrono::milliseconds(50);
  const std::size_t rounds =
      std::max<std::size_t>(1, (std::size_t{8} << 20) / bytes);  // a pass is some 100 µs at least
  double best = 0;
  do {
    const Moment start = clock.now();
    for (std::size_t r = 0; r < rounds; ++r) team.for_slices(half, 4096, copy);
    best = std::max(best, static_cast<double>(2 * half * rounds) / seconds(clock.now() - start));
  } while (clock.now() < end);
  return best;
}

}  // namespace

double MemoryBandwidth::bytes_per_second(std::size_t working_set_bytes) {
  const std::size_t bytes = std::bit_ceil(std::clamp(working_set_bytes, kLeast, kMost));
  const auto found = measured_.find(bytes);
  return found != measured_.end() ? found->second : measured_[bytes] = measure(bytes, threads_);
}

}  // namespace psring::cli
