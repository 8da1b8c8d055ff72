#include <algorithm>

#include <psring/common/base/pieces.h>

namespace psring {

std::vector<Piece> make_pieces(const Layout& layout) {
  std::vector<Piece> pieces;
  const std::vector<std::size_t> offsets = layout.offsets();
  for (std::size_t unit = 0; unit < layout.units.size(); ++unit) {
    const Partition partition = layout.partition(unit);
    for (std::size_t owner = 0; owner < layout.owners; ++owner) {
      const Range whole = partition.range(owner);
      const std::size_t offset = offsets[unit] / layout.owners;
      for (std::size_t begin = whole.begin; begin < whole.end; begin += layout.piece_elements) {
        const Range range{begin, std::min(whole.end, begin + layout.piece_elements)};
        pieces.push_back({unit, owner, range, offset + begin - whole.begin});
      }
    }
  }
  return pieces;
}

}  // namespace psring
