#pragma once

#include <string>

#include <psring/common/base/error.h>
#include <psring/common/net/frame.h>
#include <psring/common/net/outbox.h>
#include <psring/server/staleness.h>

namespace psring::server {

/// The header of an answer to a request: it names the same unit, range and step, and echoes the asker's `dest`.
net::FrameHeader answer_to(const net::FrameHeader& asked, net::FrameType type);
/// Writes staleness and lag of the asker's last gradient into an answer.
void set_staleness(const Staleness& gradient, net::FrameHeader& answer);
/// The answer to a request that is refused; see common/net/failed_frame.h. The line is cut to 1024 bytes, which
/// transports copy.
net::Outgoing failed(const net::FrameHeader& asked, const Error& error);

}  // namespace psring::server
