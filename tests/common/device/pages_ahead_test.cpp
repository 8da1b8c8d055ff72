// Pages that a thread touches before they are needed.
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/mman.h>

#include <psring/common/device/mapping.h>
#include <psring/common/device/pages.h>
#include <psring/common/device/pages_ahead.h>

using namespace psring;

namespace {

constexpr std::size_t kBytes = std::size_t{9} << 20;

std::size_t present_bytes(std::span<std::byte> pages) {
  const std::size_t page = page_bytes();
  std::vector<unsigned char> states(pages.size() / page);
  REQUIRE(::mincore(pages.data(), pages.size(), states.data()) == 0);
  std::size_t present = 0;
  for (const unsigned char state : states) present += (state & 1) * page;
  return present;
}

void wait_until_present(std::span<std::byte> pages) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (present_bytes(pages) < pages.size()) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Whether this kernel touches pages when it is asked to. QEMU takes the advice, and does nothing.
bool touches() {
#ifdef MADV_POPULATE_WRITE
  const Mapping probe(std::size_t{1} << 16);
  return ::madvise(probe.data(), probe.size(), MADV_POPULATE_WRITE) == 0 &&
         present_bytes(probe.bytes()) == probe.size();
#else
  return false;
#endif
}

}  // namespace

TEST_CASE("touched pages are present, and have the content that they had") {
  if (!touches()) {
    WARN("this kernel cannot touch pages");
    return;
  }
  const Mapping mapping(2 * kBytes);
  PagesAhead ahead;
  std::memset(mapping.data(), 7, 100);
  ahead.touch(mapping.bytes().subspan(64, kBytes - 64));  // neither begins nor has to end with a page
  wait_until_present(mapping.bytes().first(kBytes));
  for (std::size_t at = 0; at < kBytes; ++at) REQUIRE(mapping.bytes()[at] == (at < 100 ? std::byte{7} : std::byte{0}));
  CHECK(present_bytes(mapping.bytes().subspan(kBytes + (std::size_t{2} << 20))) == 0);
  ahead.touch(mapping.bytes().subspan(kBytes));
  wait_until_present(mapping.bytes());
}

TEST_CASE("pages that are forgotten can be unmapped, and others are touched nevertheless") {
  PagesAhead ahead;
  const Mapping kept(kBytes);
  for (int time = 0; time < 50; ++time) {
    std::optional<Mapping> leaves(std::in_place, kBytes);
    ahead.touch(leaves->bytes());
    ahead.touch(kept.bytes());
    ahead.forget(leaves->bytes());
    if (time % 2 == 0) {
      const std::size_t present = present_bytes(leaves->bytes());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      CHECK(present_bytes(leaves->bytes()) == present);
    }
    leaves.reset();
  }
  if (touches()) wait_until_present(kept.bytes());
}

TEST_CASE("an end does not wait for all that was asked for") {
  const Mapping mapping(std::size_t{1} << 30);
  {
    const PagesAhead unused;
    PagesAhead ahead;
    ahead.touch({});
    ahead.touch(mapping.bytes());
  }
  CHECK(present_bytes(mapping.bytes()) < mapping.size());
}
