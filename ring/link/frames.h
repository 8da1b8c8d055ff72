#pragma once

#include <psring/common/net/frame.h>
#include <psring/ring/call.h>

namespace psring::ring {

// A call travels in every frame of its operation, so that a rank that called another operation finds out.

/// Writes a call into a frame's header: type, dtype, micro (reduction and located), unit (root), version (count) and
/// dest (fingerprint).
void put_call(const Call& call, net::FrameHeader& header);
/// The call that a header holds. A frame of a message holds the sender's call.
Call call_of(const net::FrameHeader& header);
/// The call that the other side of an operation puts into its frames.
Call sent_call(Call call);

}  // namespace psring::ring
