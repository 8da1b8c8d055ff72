// Store alone: places, versions and memory of a shard's pieces.
#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/server/store/store.h>
#include <psring/tests/support/shard_cluster.h>
#include <psring/tests/support/values.h>

using namespace psring;
using server::ShardOptions;
using server::Store;

namespace {

net::FrameHeader header_of(std::uint32_t unit, Range range) {
  net::FrameHeader header;
  header.unit = unit;
  header.set_range(range);
  return header;
}

}  // namespace

TEST_CASE("a trained piece has two versions in memory, another piece one") {
  const auto rule = test::make_rule("sgd");
  const ShardOptions options{.optimizer = rule.get(), .first_version = 4};
  MemoryLedger ledger;
  Store store(options, ledger);
  Layout layout = test::small_layout(1);
  layout.units[0].trained = false;
  store.open({layout});
  CHECK(store.elements() == layout.elements());
  CHECK(store.trained_elements() == layout.units[1].elements);
  CHECK(store.trained_pieces() == 1);
  CHECK(ledger.current_bytes(Category::parameters) == (store.elements() + store.trained_elements()) * sizeof(float));
  CHECK(store.values(0, 4).data() == store.values(0, 5).data());
  CHECK(store.values(1, 4).data() != store.values(1, 5).data());
  CHECK(store.values(1, 4).data() == store.values(1, 6).data());
  CHECK(store.version() == 4);
  const std::byte* const next = store.next(1).data();
  store.advance(1);
  CHECK(store.version() == 5);
  CHECK(store.current(1).data() == next);
  CHECK(store.piece(0).version == 4);
}

TEST_CASE("a frame's piece is found by unit and range") {
  const auto rule = test::make_rule("sgd");
  const ShardOptions options{.rank = 1, .servers = 2, .optimizer = rule.get()};
  MemoryLedger ledger;
  Store store(options, ledger);
  const Layout layout = test::small_layout(2);
  store.open({layout});
  for (const Piece& piece : make_pieces(layout)) {
    const auto find = [&] { return store.find(header_of(static_cast<std::uint32_t>(piece.unit), piece.range)); };
    if (piece.owner == 1)
      CHECK(store.piece(find()).piece.range == piece.range);
    else
      CHECK_THAT(test::error_of(ErrorKind::protocol, [&] { find(); }), Catch::Contains("no piece"));
  }
  CHECK_THAT(test::error_of(ErrorKind::protocol,
                            [&] {
                              store.find(header_of(2, {0, 256}));
                            }),
             Catch::Contains("no unit 2"));
}

TEST_CASE("without an optimizer the store has one buffer, for the aggregated gradient") {
  const ShardOptions options;
  MemoryLedger ledger;
  Store store(options, ledger);
  const Layout layout = test::small_layout(1);
  store.open({layout});
  CHECK(ledger.current_bytes(Category::gradients) == layout.elements() * sizeof(float));
  CHECK(ledger.current_bytes(Category::parameters) == 0);
  CHECK(store.current(0).data() == store.next(0).data());
  CHECK(store.piece(0).initialised);
}
