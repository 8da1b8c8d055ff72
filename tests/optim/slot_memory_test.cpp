// The memory of an index's maps: blocks of equal sizes, and the pages of freed ones.
#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/mman.h>
#include <unistd.h>

#include <psring/optim/rows/row_hash.h>
#include <psring/optim/rows/row_index.h>
#include <psring/optim/rows/slot_memory.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::optim;
using Catch::Contains;
using test::error_of;

namespace {

constexpr std::size_t kLarge = 557'000;

/// The number of pages that lie wholly in these bytes, and of those that use memory.
struct Pages {
  std::size_t all = 0;
  std::size_t present = 0;
};
Pages pages_of(std::byte* begin, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t skipped = (page - reinterpret_cast<std::uintptr_t>(begin) % page) % page;
  Pages pages{.all = (bytes - skipped) / page};
  std::vector<unsigned char> states(pages.all);
  REQUIRE(::mincore(begin + skipped, pages.all * page, states.data()) == 0);
  for (const unsigned char state : states) pages.present += state & 1;
  return pages;
}

std::byte* page_of(std::byte* byte) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return byte - reinterpret_cast<std::uintptr_t>(byte) % page;
}

}  // namespace

TEST_CASE("blocks of one size do not overlap, and a freed one is used again") {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{8} << 10, (std::size_t{8} << 10) - 64, kLarge}) {
    constexpr std::size_t kBlocks = 9;
    SlotMemory memory(kBlocks);
    std::vector<std::byte*> blocks;
    for (std::size_t i = 0; i < kBlocks; ++i) {
      blocks.push_back(memory.allocate(bytes));
      CHECK(reinterpret_cast<std::uintptr_t>(blocks.back()) % 64 == 0);
      std::memset(blocks.back(), static_cast<int>(i + 1), bytes);
    }
    const auto holds = [&](std::size_t block) {
      return std::ranges::all_of(std::span(blocks[block], bytes),
                                 [&](std::byte byte) { return byte == std::byte(block + 1); });
    };
    for (std::size_t i = 0; i < kBlocks; ++i) CHECK(holds(i));
    memory.free(blocks[4], bytes);
    blocks[4] = memory.allocate(bytes);
    std::memset(blocks[4], 5, bytes);
    for (std::size_t i = 0; i < kBlocks; ++i) CHECK(holds(i));
    for (std::byte* const block : blocks) memory.free(block, bytes);
  }
}

TEST_CASE("the pages of a freed block go back to the host") {
  SlotMemory memory(4);
  std::byte* const first = memory.allocate(kLarge);
  std::byte* const second = memory.allocate(kLarge);
  std::memset(first, 1, kLarge);
  std::memset(second, 1, kLarge);
  CHECK(pages_of(first, kLarge).present == pages_of(first, kLarge).all);
  memory.free(first, kLarge);
  CHECK(pages_of(first, kLarge).present == 0);
  CHECK(pages_of(second, kLarge).present == pages_of(second, kLarge).all);
  memory.free(second, kLarge);
}

TEST_CASE("more blocks than there is room for are refused") {
  SlotMemory memory(2);
  std::vector<std::byte*> blocks{memory.allocate(kLarge), memory.allocate(kLarge)};
  CHECK_THAT(error_of(ErrorKind::bug, [&] { memory.allocate(kLarge); }), Contains("more than 2 blocks"));
  CHECK_THAT(error_of(ErrorKind::bug, [&] { memory.allocate(kLarge); }), Contains("more than 2 blocks"));
  for (std::byte* const block : blocks) memory.free(block, kLarge);
  unsigned char state = 0;
  CHECK(::mincore(page_of(blocks[0]), 1, &state) != 0);  // nothing is mapped there
  memory.free(memory.allocate(kLarge), kLarge);
}

TEST_CASE("an index with mapped slots finds, grows and shrinks") {
  MemoryLedger ledger;
  RowIndex index(ledger);
  constexpr std::uint32_t kKeys = 300'000;  // 1,172 keys a map, in 2,047 slots
  std::vector<std::uint64_t> keys;
  for (std::uint32_t row = 0; row < kKeys; ++row) {
    keys.push_back(mix64(row));
    index.insert(keys.back(), row);
  }
  const auto rows_of = [&](std::span<const std::uint64_t> some) {
    std::vector<std::uint32_t> rows(some.size());
    index.find(some, rows);
    return rows;
  };
  std::vector<std::uint32_t> found = rows_of(keys);
  for (std::uint32_t row = 0; row < kKeys; ++row) REQUIRE(found[row] == row);
  index.erase(std::span(keys).first(kKeys - 1000));
  found = rows_of(keys);
  for (std::uint32_t row = 0; row < kKeys; ++row) REQUIRE(found[row] == (row < kKeys - 1000 ? RowIndex::kNoRow : row));
  for (std::uint32_t row = 0; row < kKeys - 1000; ++row) index.insert(keys[row], row);
  found = rows_of(keys);
  for (std::uint32_t row = 0; row < kKeys; ++row) REQUIRE(found[row] == row);
}
