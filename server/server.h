#pragma once

#include <functional>

#include <psring/common/base/clock.h>
#include <psring/common/base/events/events.h>
#include <psring/common/net/transport.h>
#include <psring/server/replication.h>
#include <psring/server/shard.h>

namespace psring::server {

/// Runs the loop around a shard: frames in, answers out in priority order, until `finished` returns true (the workers
/// are done) and nothing waits to be sent. Calls `finished` between frames and at least every 100 ms. An exception from
/// `finished` (a peer was lost) or from the shard ends the loop; a broken link to a worker does not, `finished`
/// decides.
///
/// `events`, if given, gets an Activity for each frame with a payload. `save` writes the shard's part of the checkpoint
/// of a step. `replication`, if the server has a follower, belongs to this shard and has not begun; the transport is
/// linked to the follower. Returns the time that the server worked on frames and their answers, without waiting for
/// them.
Nanoseconds serve(Shard& shard, net::Transport& transport, const Clock& clock, const std::function<bool()>& finished,
                  Events* events = nullptr, const std::function<void(std::uint64_t step)>& save = nullptr,
                  Replication* replication = nullptr);

/// Runs the follower's loop until `finished` returns true; exceptions as in `serve`. When the loop has ended, in any
/// way, `follower` says whether it has the whole state.
void follow(Follower& follower, net::Transport& transport, const Clock& clock, const std::function<bool()>& finished);

}  // namespace psring::server
