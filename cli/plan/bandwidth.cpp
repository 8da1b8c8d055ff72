#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <vector>

#include <psring/cli/plan/bandwidth.h>
#include <psring/common/base/clock.h>
#include <psring/common/base/median.h>
#include <psring/common/base/parallel.h>
#include <psring/common/base/system/mutex.h>

namespace psring::cli {
namespace {

constexpr std::size_t kLeast = std::size_t{1} << 20;
// Takes some 100 µs, so that the clock's resolution does not matter.
constexpr std::size_t kPass = std::size_t{2} << 20;
constexpr std::size_t kMost = std::size_t{256} << 20;  // exceeds all caches: larger sets have the same speed

/// Returns the sum over all threads of each thread's median pass, measured while the other threads work as well. The
/// median ignores passes that waited for a processor, and passes that had the whole cache because another thread
/// waited.
double measure(std::size_t bytes, std::size_t threads) {
  Parallel team(threads);
  std::vector<char> memory(bytes, 1);
  const std::size_t half = bytes / 2;
  const SystemClock clock;
  const Moment end = clock.now() + std::chrono::milliseconds(50);
  Mutex mutex;
  double sum = 0;
  team.for_slices(half, 4096, [&](Range range) {
    if (range.empty()) return;
    const std::size_t rounds = 1 + kPass / range.size();
    std::vector<double> rates;
    do {
      const Moment start = clock.now();
      for (std::size_t r = 0; r < rounds; ++r)
        std::memcpy(&memory[half + range.begin], &memory[range.begin], range.size());
      rates.push_back(static_cast<double>(2 * range.size() * rounds) / seconds(clock.now() - start));
    } while (clock.now() < end);
    const MutexLock lock(mutex);
    sum += median(std::move(rates));
  });
  return sum;
}

}  // namespace

double MemoryBandwidth::bytes_per_second(std::size_t working_set_bytes) {
  const std::size_t bytes = std::bit_ceil(std::clamp(working_set_bytes, kLeast, kMost));
  const auto found = measured_.find(bytes);
  return found != measured_.end() ? found->second : measured_[bytes] = measure(bytes, threads_);
}

}  // namespace psring::cli
