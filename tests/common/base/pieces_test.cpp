#include <map>

#include <catch2/catch.hpp>

#include <psring/common/base/pieces.h>

using namespace psring;

namespace {

Layout layout_of(const std::vector<std::size_t>& sizes, std::size_t owners) {
  std::vector<UnitSpec> units;
  for (const std::size_t size : sizes) units.push_back({fmt::format("u{}", units.size()), {{{"t", {size}, {}}, 0}}});
  return make_layout(std::move(units), owners);
}

}  // namespace

TEST_CASE("pieces cover each unit once, in order, within their owner's range") {
  for (const std::size_t owners : {1, 2, 3, 5}) {
    const Layout layout = layout_of({1, 100'000, 0, kPieceElements, kPieceElements + 1, 2'000'000}, owners);
    const std::vector<Piece> pieces = make_pieces(layout);
    std::vector<std::size_t> covered(layout.units.size(), 0);
    std::map<std::size_t, std::size_t> stored;
    std::size_t last_unit = 0;
    for (const Piece& piece : pieces) {
      CAPTURE(owners, piece.unit, piece.range.begin);
      CHECK(piece.unit >= last_unit);
      last_unit = piece.unit;
      CHECK(piece.range.begin == covered[piece.unit]);
      covered[piece.unit] = piece.range.end;
      CHECK(piece.range.size() > 0);
      CHECK(piece.range.size() <= kPieceElements);
      CHECK(piece.range.begin % kCut == 0);
      CHECK(layout.partition(piece.unit).range(piece.owner).contains(piece.range));
      CHECK(piece.offset == stored[piece.owner]);  // one after the other, without a gap
      stored[piece.owner] += piece.range.size();
    }
    for (std::size_t unit = 0; unit < layout.units.size(); ++unit) CHECK(covered[unit] == layout.units[unit].elements);
    for (std::size_t owner = 0; owner < owners; ++owner) CHECK(stored[owner] == layout.elements() / owners);
  }
}

TEST_CASE("an owner's range is cut on multiples of the grain, the rest comes last") {
  const Layout layout = layout_of({2 * (2 * kPieceElements + 512)}, 2);
  const std::vector<Piece> pieces = make_pieces(layout);
  REQUIRE(pieces.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(pieces[i].owner == i / 3);
    CHECK(pieces[i].range.size() == (i % 3 == 2 ? 512 : kPieceElements));
  }
}

TEST_CASE("what is trained stands first in an owner's storage, in order, and the rest after it") {
  for (const std::size_t owners : {1, 3}) {
    Layout layout = layout_of({1, 100'000, 300, kPieceElements + 1, 700}, owners);
    for (const std::size_t unit : {0, 3}) layout.units[unit].trained = false;
    CHECK(layout.trained() == std::vector<std::size_t>{1, 2, 4});
    CHECK(layout.elements() - layout.trained_elements() == layout.units[0].elements + layout.units[3].elements);
    CHECK(layout.gradient_bytes() == layout.trained_elements() * sizeof(float));
    CHECK(layout.gradient_bytes(3) == 0);
    std::map<std::size_t, std::size_t> stored;
    for (const bool trained : {true, false}) {
      for (const Piece& piece : make_pieces(layout)) {
        if (layout.units[piece.unit].trained != trained) continue;
        CHECK(piece.offset == stored[piece.owner]);
        stored[piece.owner] += piece.range.size();
      }
      if (trained) CHECK(stored[0] == layout.trained_elements() / owners);
    }
    for (std::size_t owner = 0; owner < owners; ++owner) CHECK(stored[owner] == layout.elements() / owners);
  }
}

TEST_CASE("no unit and empty units have no pieces") {
  CHECK(make_pieces(layout_of({}, 3)).empty());
  CHECK(make_pieces(layout_of({0, 0}, 3)).empty());
}
