#pragma once

#include <cstddef>

#include <psring/common/base/mesh.h>

namespace psring {

/// One of the parts that a mesh divides the model into: what the workers of a data-parallel group compute, and what the
/// servers of that group own. The ranks of these processes are all that leave the rest `number` when divided by
/// `count`, for workers and for servers.
struct MeshPart {
  std::size_t number = 0;
  std::size_t count = 1;

  bool has(std::size_t rank) const { return rank % count == number; }
  /// The number of a process of the part, among those of its role that have the part.
  std::size_t within(std::size_t rank) const { return rank / count; }
  std::size_t in_job(std::size_t within) const { return number + count * within; }
};

/// The part of the worker or the server of this rank.
inline MeshPart part_of(const Mesh& mesh, std::size_t rank) {
  return {rank % mesh.model_workers(), mesh.model_workers()};
}

}  // namespace psring
