#pragma once

#include <cstddef>
#include <vector>

#include <psring/common/base/layout.h>

namespace psring {

/// A part of one unit that one owner holds: the grain of the exchange. It is pushed, aggregated, updated, versioned
/// and answered by itself, so that these steps overlap and the data is still in cache for the next of them.
struct Piece {
  std::size_t unit = 0;
  std::size_t owner = 0;
  Range range;             ///< elements of the unit
  std::size_t offset = 0;  ///< where it stands in its owner's flat storage; trained units come first there
};

/// All pieces of a layout: units in order, in each the owners in order, each owner's range cut on
/// multiples of layout.piece_elements. Client and server compute it alike.
std::vector<Piece> make_pieces(const Layout& layout);

}  // namespace psring
