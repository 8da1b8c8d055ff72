#include <algorithm>

#include <psring/common/base/pieces.h>

namespace psring {

std::vector<Piece> make_pieces(const Layout& layout) {
  std::vector<Piece> pieces;
  std::vector<std::size_t> trained(layout.owners, 0);  // by owner: the offset of its next range of a trained unit
  std::vector<std::size_t> frozen(layout.owners);
  for (std::size_t owner = 0; owner < layout.owners; ++owner) frozen[owner] = layout.owned_trained_elements(owner);
  for (std::size_t unit = 0; unit < layout.units.size(); ++unit) {
    const Partition partition = layout.partition(unit);
    for (std::size_t owner = 0; owner < layout.owners; ++owner) {
      const Range whole = partition.range(owner);
      std::size_t& next = (layout.units[unit].trained ? trained : frozen)[owner];
      const std::size_t offset = next;
      next += whole.size();
      for (std::size_t begin = whole.begin; begin < whole.end; begin += layout.piece_elements) {
        const Range range{begin, std::min(whole.end, begin + layout.piece_elements)};
        pieces.push_back({unit, owner, range, offset + begin - whole.begin});
      }
    }
  }
  return pieces;
}

}  // namespace psring
