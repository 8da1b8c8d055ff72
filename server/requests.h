#pragma once

#include <cstddef>

#include <psring/common/base/layout.h>
#include <psring/common/net/transport.h>
#include <psring/server/shard_options.h>

namespace psring::server {

/// Throws protocol unless the sender is one of the job's workers.
void check_worker(const ShardOptions& options, const net::FrameHeader& header);

/// Checks a worker's layout. Throws protocol if the layout is cut for another number of servers, asks for sums that
/// this server does not make, or needs more than options.memory_bytes here.
void check_layout(const ShardOptions& options, const Layout& layout);

/// Checks the form of a request about one piece (initial, push, push_pull, pull): element type, encoding, bytes of
/// payload, and bytes of memory for the answer. Throws protocol. `answered`: the type of the values in answers.
void check_form(const ShardOptions& options, const Layout& layout, DType answered, const net::Message& message);

/// True for frames with a gradient.
inline bool is_push(net::FrameType type) { return type == net::FrameType::push || type == net::FrameType::push_pull; }

}  // namespace psring::server
