#pragma once

#include <functional>

#include <psring/common/base/clock.h>
#include <psring/common/base/trace.h>
#include <psring/common/net/transport.h>
#include <psring/server/replication.h>
#include <psring/server/shard.h>

namespace psring::server {

/// The loop around a shard: frames in, replies out in priority order, until `finished` says that the
/// workers are done and nothing waits to be sent. `finished` is asked between frames and at least every
/// 100 ms; what it throws (a peer was lost) ends the loop, and so does what the shard throws. A worker
/// whose link breaks before then is left to `finished` to judge. `trace`, where given, gets a span for each
/// frame with a payload. `save` writes the shard's part of the checkpoint of a step. `replication`, where the server
/// has a follower, is that of this shard and has not begun; the transport is linked to the follower. Returns the time
/// that the server worked on frames and their answers, without waiting for them.
Nanoseconds serve(Shard& shard, net::Transport& transport, const Clock& clock, const std::function<bool()>& finished,
                  Trace* trace = nullptr, const std::function<void(std::uint64_t step)>& save = nullptr,
                  Replication* replication = nullptr);

/// The follower's loop, until `finished`, as of serve. Where it ends, whichever way, `follower` says what it has.
void follow(Follower& follower, net::Transport& transport, const Clock& clock, const std::function<bool()>& finished);

}  // namespace psring::server
