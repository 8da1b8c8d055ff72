#pragma once

#include <cstddef>
#include <cstdint>

#include <psring/ring/shm/endpoint.h>

namespace psring::ring {

/// The place of a rank's vector in the control file, by the vector's size. REQUIRES: bytes <= kShmEagerBytes.
inline std::byte* eager_buffer_of(const ShmEndpoint& at, std::size_t rank, std::uint64_t number, std::size_t bytes) {
  ShmPost& post = at.control().post(rank, number);
  if (bytes > sizeof post.small) return at.control().eager_buffer(rank, number);
  return bytes <= sizeof post.few ? post.few : post.small;
}

/// Tells the other ranks of this rank's operation `number`: `said` is the operation as they compare it. Copies a small
/// vector into its eager buffer. REQUIRES: all ranks have finished operation number - kShmPosts, whose post is used
/// again.
void post(ShmEndpoint& at, std::uint64_t number, const Call& said, const Call& call, Vector data);

/// Takes the cache lines of a post, which other ranks have read, back into this processor's cache while the caller
/// computes. `bytes`: the expected size of the vector.
void prepare_post(const ShmEndpoint& at, std::uint64_t number, std::size_t bytes);

}  // namespace psring::ring
