#pragma once

#include <cstdint>
#include <memory>

#include <psring/common/net/transport.h>
#include <psring/common/proc/job.h>

namespace psring::test {

/// Planted, to see that the simulation finds them. All are a server's.
enum class Bug : std::uint8_t {
  none,
  early_answers,   ///< answers leave before the follower has what they are due to
  double_updates,  ///< a push that is repeated after its update goes into the next one, too
};

/// A server's side of a bug: what it takes the links for that it has in an epoch.
class BuggyServer {
 public:
  virtual ~BuggyServer() = default;
  /// `self`: its duty in the epoch. `transport` outlives what is returned.
  virtual std::unique_ptr<net::Transport> links(net::Transport& transport, net::Peer self) = 0;
};

/// Makes the buggy part of a server of this job, for all of its epochs; null if there is no bug.
std::unique_ptr<BuggyServer> make_buggy(Bug bug, const JobOptions& job, std::size_t pushes);

}  // namespace psring::test
