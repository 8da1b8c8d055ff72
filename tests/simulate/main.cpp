// simulate [SEEDS] [FIRST]: jobs over bad networks, one for each seed; 100000 from 0 on. scripts/simulate builds it.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include <psring/common/base/system/processors.h>
#include <psring/tests/simulate/simulation.h>

namespace {

std::optional<std::uint64_t> number(const char* text) {
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != '\0') return std::nullopt;
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  const std::optional<std::uint64_t> seeds = argc > 1 ? number(argv[1]) : 100'000;
  const std::optional<std::uint64_t> first = argc > 2 ? number(argv[2]) : 0;
  if (argc > 3 || !seeds || !first) {
    fmt::print(stderr, "simulate: expected [SEEDS] [FIRST], two numbers\n");
    return 2;
  }
  const auto began = std::chrono::steady_clock::now();
  std::atomic<std::uint64_t> next{0};
  std::atomic<std::uint64_t> failures{0};
  psring::test::Examiner::Totals all;
  std::mutex printing;
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < psring::usable_processors(); ++i)
      threads.emplace_back([&] {
        psring::test::Examiner examiner;
        for (std::uint64_t n = next++; n < *seeds; n = next++) {
          const std::uint64_t seed = *first + n;
          if (const auto finding = examiner.examine(seed)) {
            ++failures;
            const std::scoped_lock lock(printing);
            fmt::print("{}\n  again: scripts/simulate 1 {}\n", *finding, seed);
            std::fflush(stdout);
          }
        }
        const std::scoped_lock lock(printing);
        all += examiner.totals();
      });
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  fmt::print("{} seeds from {}: {} failures, {} frames sent again, {:.1f} s, {:.2f} ms a seed\n", *seeds, *first,
             failures.load(), all.retransmitted, seconds,
             *seeds == 0 ? 0 : 1e3 * seconds / static_cast<double>(*seeds));
  fmt::print(
      "{} of them with crashes: {} processes, {} times a server and its follower changed places, {} begun anew, "
      "{} ended with fewer workers, {} of these with rows\n",
      all.crashed, all.crashes, all.promoted, all.begun_anew, all.shrunk, all.shrunk_with_rows);
  return failures == 0 ? 0 : 6;
}
