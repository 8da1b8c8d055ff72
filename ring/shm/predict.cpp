#include <psring/ring/shm/control.h>
#include <psring/ring/shm/predict.h>

namespace psring::ring {
namespace {

std::uint64_t bytes_of(const std::vector<Range>& ranges, ElementType type) {
  std::uint64_t elements = 0;
  for (const Range range : ranges) elements += range.size();
  return elements * type.bytes();
}

}  // namespace

Cost predict_shm(std::size_t rank, std::size_t ranks, Collective collective, std::size_t count, ElementType type,
                 const Parts& parts, std::size_t root) {
  const std::uint64_t bytes = count * type.bytes();
  const std::uint64_t others = ranks - 1;
  const auto of_rank = [&] { return bytes_of(parts[rank], type); };
  std::uint64_t all_parts = 0;
  for (const auto& ranges : parts) all_parts += bytes_of(ranges, type);
  switch (collective) {
    case Collective::all_reduce: {
      if (bytes <= kShmCopiedBytes) return {{others * bytes, others * bytes}};
      // Cut as the operation cuts the vector: the slices of a staged vector differ by their rounding alone.
      const std::uint64_t mine = ((rank + 1) * count / ranks - rank * count / ranks) * type.bytes();
      return {{others * mine + bytes - mine, others * mine + bytes - mine}};
    }
    case Collective::reduce_scatter:
      return {{all_parts - of_rank(), others * of_rank()}};
    case Collective::all_gather:
      return {{others * of_rank(), all_parts - of_rank()}};
    case Collective::broadcast:
      return {rank == root ? Moved{others * bytes, 0} : Moved{0, bytes}};
    case Collective::send:
      return {{bytes, 0}};
    case Collective::recv:
      return {{0, bytes}};
    default:
      return {};
  }
}

}  // namespace psring::ring
