#include <array>

#include <psring/common/base/text/names.h>
#include <psring/ring/collective.h>

namespace psring::ring {

Parts even_parts(std::size_t count, std::size_t ranks) {
  Parts parts;
  for (std::size_t r = 0; r < ranks; ++r) parts.push_back({{r * count / ranks, (r + 1) * count / ranks}});
  return parts;
}

Parts parts_of_sizes(std::span<const std::size_t> sizes) {
  Parts parts;
  std::size_t begin = 0;
  for (const std::size_t size : sizes) {
    parts.push_back({{begin, begin + size}});
    begin += size;
  }
  return parts;
}

std::string_view to_string(Collective collective) {
  static constexpr std::array<std::string_view, 7> kNames = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                                             "barrier",    "send",           "recv"};
  return name_in(kNames, collective);
}

}  // namespace psring::ring
