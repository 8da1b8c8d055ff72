#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <psring/common/net/outbox.h>
#include <psring/common/net/transport.h>
#include <psring/tests/support/shard_cluster.h>
#include <psring/worker/client_protocol.h>

namespace psring::test {

struct CutRules {
  ShardRules shards;
  std::size_t micros = 1;  ///< pushes of a step
  bool push_pull = true;   ///< in one frame; needs micros == 1
  std::uint64_t steps = 3;
  std::uint64_t seed = 1;  ///< of the order in which links deliver
};

/// A job's workers and shards with their protocols and nothing else: links are queues, and which of them delivers next
/// is a seed's choice. Payloads lie in their senders' memory, answers are stored into the askers', as over shared
/// memory. The job can be cut between any two frames: all links are lost, and all workers begin anew.
class CutJob {
 public:
  explicit CutJob(const CutRules& rules);
  ~CutJob();

  /// Delivers up to `frames` frames, fewer where no more are on their way. Throws what the protocols throw.
  std::size_t run(std::size_t frames);
  /// Have all workers made all their steps?
  bool done() const;
  /// A new membership epoch: whatever was on its way is lost, and so is what workers had.
  void cut();

  const Layout& layout() const { return layout_; }
  server::Shard& shard(std::size_t rank) { return shards_.shard(rank); }
  /// The workers' final parameters, all units after each other. REQUIRES: done, and all have the same.
  std::vector<float> parameters() const;
  /// Has a shard kept memory of a worker of an epoch that has ended, or stored into it?
  bool knows_the_dead() const;
  /// Where a worker began in this epoch.
  std::uint64_t first_step_of(std::size_t worker) const;

 private:
  class Worker;
  void send(net::Peer from, std::vector<net::Outgoing>& frames);
  void deliver(net::Peer from, net::Peer to, net::Message message);

  const CutRules rules_;
  Layout layout_;
  ShardCluster shards_;
  std::vector<std::shared_ptr<Worker>> workers_;  ///< shared: messages that wait hold their senders' memory
  std::vector<std::shared_ptr<Worker>> dead_;
  std::map<std::pair<net::Peer, net::Peer>, std::deque<net::Message>> links_;
  std::mt19937_64 order_;
};

}  // namespace psring::test
