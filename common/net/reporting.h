#pragma once

#include <memory>

#include <psring/common/base/events.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// The same transport; every frame that leaves or arrives with a payload, or that asks for one, is emitted as
/// FrameMoved. Both ends of a link number its frames alike. REQUIRES: `inner` and the stream outlive it; no
/// frame was sent or received through `inner` before.
std::unique_ptr<Transport> make_reporting(Transport& inner, Events& events);

}  // namespace psring::net
