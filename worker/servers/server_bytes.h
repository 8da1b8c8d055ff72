#pragma once

#include <cstddef>
#include <cstdint>

#include <psring/common/base/layout.h>
#include <psring/common/proc/job.h>

namespace psring::optim {
class Codec;
}  // namespace psring::optim

namespace psring::worker {

/// The bytes of payload that one push of a unit's gradient sends to a server. 0 for a unit that is not trained.
/// `codec`: encodes each piece of the gradient; null: gradients are sent in the layout's type.
std::uint64_t pushed_bytes(const Layout& layout, std::size_t unit, std::size_t server, const optim::Codec* codec);

/// The bytes of payload that one pull of a unit, in elements of the type, receives from a server.
std::uint64_t pulled_bytes(const Layout& layout, std::size_t unit, std::size_t server, DType type);

/// True if servers never have access to the memory of workers in other processes, whatever the hosts: frames take
/// sockets.
bool only_sockets(const JobOptions& job);

}  // namespace psring::worker
