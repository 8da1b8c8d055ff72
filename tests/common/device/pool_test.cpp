// A device's pool of memory, on a device that the host plays.
#include <cstdlib>

#include <catch2/catch.hpp>

#include <psring/common/device/cuda/pool.h>

using psring::cuda::MemorySource;
using psring::cuda::Pool;

namespace {

constexpr std::size_t kLeast = 1000;
constexpr std::size_t kTooMuch = std::size_t{1} << 40;

int given = 0;  ///< by the source, and not taken back

constexpr MemorySource kSource{"a source",
                               [](std::size_t bytes) {
                                 if (bytes >= kTooMuch) return static_cast<std::byte*>(nullptr);
                                 ++given;
                                 return static_cast<std::byte*>(std::malloc(bytes));
                               },
                               [](std::byte* memory) {
                                 --given;
                                 std::free(memory);
                               }};

}  // namespace

TEST_CASE("a pool gives what was freed last to who asks for as much") {
  Pool pool;
  std::byte* const first = pool.allocate(100, Pool::Kind::own);
  std::byte* const second = pool.allocate(100, Pool::Kind::own);
  CHECK(first != second);
  pool.free(first);
  pool.free(second);
  CHECK(pool.allocate(99, Pool::Kind::own) != second);
  CHECK(pool.allocate(100, Pool::Kind::own) == second);
  CHECK(pool.allocate(100, Pool::Kind::own) == first);
  pool.free(nullptr);
}

TEST_CASE("shared pieces come from their source, and are known by any place of theirs") {
  {
    Pool pool;
    std::byte* const before = pool.allocate(kLeast, Pool::Kind::shared);
    pool.free(before);
    CHECK(given == 0);
    pool.share_through(kSource, kLeast);
    std::byte* const piece = pool.allocate(kLeast, Pool::Kind::shared);
    std::byte* const small = pool.allocate(kLeast - 1, Pool::Kind::shared);
    std::byte* const own = pool.allocate(kLeast, Pool::Kind::own);
    CHECK(own == before);
    CHECK(given == 1);
    for (const std::byte* at : {piece, piece + 1, piece + kLeast - 1}) {
      const auto found = pool.shared_piece(at);
      REQUIRE(found);
      CHECK(found->data() == piece);
      CHECK(found->size() == kLeast);
    }
    for (const std::byte* at : {piece + kLeast, piece - 1, small + 0, own + 0}) CHECK(!pool.shared_piece(at));

    pool.free(piece);
    pool.free(own);
    CHECK(pool.allocate(kLeast, Pool::Kind::own) == own);  // never one for the other
    CHECK(pool.allocate(kTooMuch, Pool::Kind::shared) == nullptr);
    CHECK(pool.allocate(kTooMuch, Pool::Kind::own) == nullptr);
    CHECK(given == 1);  // where there is no room shared pieces stay
    CHECK(pool.allocate(kLeast, Pool::Kind::shared) == piece);
  }
  CHECK(given == 0);
}
