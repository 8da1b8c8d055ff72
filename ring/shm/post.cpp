#include <cstring>

#include <psring/common/base/processor/hints.h>
#include <psring/ring/shm/post.h>

namespace psring::ring {

void post(ShmEndpoint& at, std::uint64_t number, const Call& said, const Call& call, Vector data) {
  ShmPost& post = at.control().post(at.rank(), number);
  post.call = said;
  const Arena& arena = at.arena();
  const std::size_t bytes = data.bytes();
  const bool small = bytes <= kShmCopiedBytes;
  const std::uint64_t place = small ? 0 : arena.mark(data.data);
  post.staged = !small && place == 0;
  post.crowded = at.crowded();
  post.offset = place != 0 ? place - 1 : static_cast<std::uint64_t>(at.staging().data() - arena.base());
  const bool copied = bytes > 0 && (small || (post.staged && bytes <= kShmEagerBytes));
  if (copied && (call.collective != Collective::broadcast || call.root == at.rank()))
    std::memcpy(eager_buffer_of(at, at.rank(), number, bytes), data.data, bytes);
  post.number.store(number + 1, std::memory_order_release);  // memory order: after all of the post
  at.bells().ring();
}

void prepare_post(const ShmEndpoint& at, std::uint64_t number, std::size_t bytes) {
  prefetch_to_write(reinterpret_cast<const std::byte*>(&at.control().post(at.rank(), number)), 64);
  if (bytes > sizeof ShmPost::few) prefetch_to_write(eager_buffer_of(at, at.rank(), number, bytes), bytes);
}

}  // namespace psring::ring
