#include <psring/worker/exchange/ownership.h>

namespace psring::worker {

std::size_t trained_elements(const Layout& layout, Range units) {
  std::size_t elements = 0;
  for (std::size_t unit = units.begin; unit < units.end; ++unit) elements += layout.trained_elements(unit);
  return elements;
}

ring::Parts owners_of(const Layout& layout, Range units) {
  ring::Parts parts(layout.owners);
  std::size_t begin = 0;
  for (std::size_t unit = units.begin; unit < units.end; ++unit) {
    if (!layout.units[unit].trained) continue;
    for (std::size_t owner = 0; owner < layout.owners; ++owner) {
      const Range range = layout.partition(unit).range(owner);
      parts[owner].push_back({begin + range.begin, begin + range.end});
    }
    begin += layout.units[unit].elements;
  }
  return parts;
}

}  // namespace psring::worker
