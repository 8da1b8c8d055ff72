#pragma once

#include <memory>

#include <psring/common/base/events/events.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// Wraps a transport: every frame that leaves or arrives with a payload, or that requests a payload, is emitted as
/// FrameMoved. Both ends of a link number its frames in the same way. REQUIRES: `inner` and the stream outlive the
/// transport, and no frame was sent or received through `inner` before.
std::unique_ptr<Transport> make_reporting(Transport& inner, Events& events);

}  // namespace psring::net
