#pragma once

#include <psring/common/base/layout.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/frame.h>
#include <psring/common/net/outbox.h>
#include <psring/common/net/transport.h>
#include <psring/server/shard_options.h>
#include <psring/server/staleness.h>

namespace psring::server {

/// The header of an answer to a request: it names the same unit, range and step, and echoes the asker's `dest`.
net::FrameHeader answer_to(const net::FrameHeader& asked, net::FrameType type);
/// Writes staleness and lag of the asker's last gradient into an answer.
void set_staleness(const Staleness& gradient, net::FrameHeader& answer);
/// The answer to a request that is refused; see common/net/failed_frame.h. The line is cut to 1024 bytes, which
/// transports copy.
net::Outgoing failed(const net::FrameHeader& asked, const Error& error);

/// Throws protocol unless the sender is one of the job's workers.
void check_worker(const ShardOptions& options, const net::FrameHeader& header);

/// Checks a worker's layout. Throws protocol if the layout is cut for another number of servers, asks for sums that
/// this server does not make, or needs more than options.memory_bytes here.
void check_layout(const ShardOptions& options, const Layout& layout);

/// Checks the form of a request about one piece (initial, push, push_pull, pull): element type, encoding, bytes of
/// payload, and bytes of memory for the answer. Throws protocol. `answered`: the type of the values in answers.
void check_form(const ShardOptions& options, const Layout& layout, DType answered, const net::Message& message);

}  // namespace psring::server
