#pragma once

#include <cstddef>
#include <vector>

#include <psring/common/base/layout.h>

namespace psring {

/// A part of one unit that one owner holds: the grain of the exchange. Each piece is pushed, aggregated, updated,
/// versioned and answered separately, so that these steps overlap and find the data still in the cache.
struct Piece {
  std::size_t unit = 0;
  std::size_t owner = 0;
  Range range;             ///< elements of the unit
  std::size_t offset = 0;  ///< position in the owner's flat storage, where trained units come first
};

/// Returns all pieces of a layout. The units are in order, the owners of each unit are in order, and each owner's range
/// is cut at multiples of layout.piece_elements. Client and server compute the same list.
std::vector<Piece> make_pieces(const Layout& layout);

}  // namespace psring
