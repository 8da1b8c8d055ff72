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
#include <psring/server/replication.h>
#include <psring/tests/support/shard_cluster.h>
#include <psring/worker/client_protocol.h>

namespace psring::test {

struct CutRules {
  ShardRules shards;
  std::size_t micros = 1;  ///< pushes of a step
  bool push_pull = true;   ///< in one frame; needs micros == 1
  bool replicas = false;   ///< each server has a follower
  bool eager = false;      ///< a planted bug: what the follower is sent counts as taken at once
  std::uint64_t steps = 3;
  std::uint64_t seed = 1;  ///< of the order in which links deliver
};

/// A job's workers and shards with their protocols and nothing else: links are queues, and which of them delivers next
/// is a seed's choice. Payloads lie in their senders' memory, answers are stored into the askers', as over shared
/// memory. The job can be cut between any two frames: all links are lost, and all workers begin anew. Server k's
/// follower is server s + k.
class CutJob {
 public:
  explicit CutJob(const CutRules& rules);
  ~CutJob();

  /// Delivers up to `frames` frames, fewer where no more are on their way. Throws what the protocols throw.
  std::size_t run(std::size_t frames);
  /// Have all workers made all their steps?
  bool done() const;
  /// A new membership epoch: whatever was on its way is lost, and so is what workers had, and the server or follower
  /// that is named: a lost server's follower takes its place, a lost follower begins with nothing.
  void cut(std::optional<net::Peer> lost = {});
  /// Would anything be left of what the server had?
  bool can_lose(std::size_t server) const { return followers_.at(server)->whole(); }

  const Layout& layout() const { return layout_; }
  server::Shard& shard(std::size_t rank) { return *shards_.at(rank); }
  server::Shard& follower(std::size_t rank) { return *follower_shards_.at(rank); }
  /// The workers' final parameters, all units after each other. REQUIRES: done, and all have the same.
  std::vector<float> parameters() const;
  /// Has a shard kept memory of a worker of an epoch that has ended, or stored into it?
  bool knows_the_dead() const;
  /// Where a worker began in this epoch.
  std::uint64_t first_step_of(std::size_t worker) const;

 private:
  class Worker;
  void send(net::Peer from, std::vector<net::Outgoing>& frames);
  void lose(net::Peer lost);
  void begin_epoch_of_servers();
  void deliver(net::Peer to, net::Message message);

  const CutRules rules_;
  Layout layout_;
  const ShardCluster cluster_;  ///< makes shards
  std::vector<std::unique_ptr<server::Shard>> shards_;
  std::vector<std::unique_ptr<server::Shard>> follower_shards_;
  std::vector<std::unique_ptr<server::Replication>> replications_;
  std::vector<std::unique_ptr<server::Follower>> followers_;
  std::vector<std::shared_ptr<Worker>> workers_;  ///< shared: messages that wait hold their senders' memory
  std::vector<std::shared_ptr<Worker>> dead_;
  std::map<std::pair<net::Peer, net::Peer>, std::deque<net::Message>> links_;
  std::map<net::Peer, std::uint64_t> eagerly_;  ///< acknowledged, by follower
  std::mt19937_64 order_;
};

}  // namespace psring::test
