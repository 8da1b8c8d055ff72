#include <psring/common/proc/fault.h>
#include <psring/optim/codec/compression.h>
#include <psring/worker/servers/server_bytes.h>

namespace psring::worker {

std::uint64_t pushed_bytes(const Layout& layout, std::size_t unit, std::size_t server, const optim::Codec* codec) {
  if (!layout.units[unit].trained) return 0;
  const std::size_t owned = layout.owned(unit, server);
  if (codec == nullptr) return owned * size_bytes(layout.gradient_type);
  // The server's range is cut into pieces as make_pieces does: all but the last one have the same size.
  const std::size_t rest = owned % layout.piece_elements;
  return owned / layout.piece_elements * codec->bytes(layout.piece_elements) + (rest > 0 ? codec->bytes(rest) : 0);
}

std::uint64_t pulled_bytes(const Layout& layout, std::size_t unit, std::size_t server, DType type) {
  return layout.owned(unit, server) * size_bytes(type);
}

bool only_sockets(const JobOptions& job) {
  return job.transport == "tcp" || !job.link.empty() || frame_faults(job.fault, job.seed, {}).has_value();
}

}  // namespace psring::worker
