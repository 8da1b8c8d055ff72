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
  switch (collective) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::all_gather:
      return "all_gather";
    case Collective::broadcast:
      return "broadcast";
    case Collective::barrier:
      return "barrier";
    case Collective::send:
      return "send";
    case Collective::recv:
      return "recv";
  }
  return "";
}

}  // namespace psring::ring
