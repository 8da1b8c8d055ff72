// A reader of a shared cell sees values that were written whole, the newer ones later.
#include <array>
#include <cstdint>
#include <thread>

#include <catch2/catch.hpp>

#include <psring/common/base/system/shared_cell.h>

using namespace psring;

TEST_CASE("a cell has its type's default until it is written") {
  struct Value {
    int number = 3;
  };
  SharedCell<Value> cell;
  CHECK(cell.read().number == 3);
  cell.write({4});
  CHECK(cell.read().number == 4);
}

TEST_CASE("a reader never sees half of a write") {
  using Value = std::array<std::uint64_t, 9>;
  constexpr std::uint64_t kLast = 200'000;
  SharedCell<Value> cell;
  std::jthread writer([&] {
    Value value{};
    for (std::uint64_t i = 1; i <= kLast; ++i) {
      value.fill(i);
      cell.write(value);
    }
  });
  std::uint64_t seen = 0;
  bool is_whole = true;
  bool is_in_order = true;
  while (seen < kLast) {
    const Value value = cell.read();
    for (const std::uint64_t word : value) is_whole = is_whole && word == value[0];
    is_in_order = is_in_order && value[0] >= seen;
    seen = value[0];
  }
  CHECK(is_whole);
  CHECK(is_in_order);
}
