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
#include <psring/worker/servers/client_protocol.h>
#include <psring/worker/tables/table_protocol.h>

namespace psring::test {

struct CutRules {
  ShardRules shards;
  std::size_t micros = 1;  ///< pushes of a step
  bool push_pull = true;   ///< push and pull in one frame; needs micros == 1
  bool tables = false;     ///< the model has a table; needs shards.keeps_old_rows
  bool lookahead = false;  ///< rows of the next step are pulled before this step's gradients are pushed
  bool replicas = false;   ///< each server has a follower
  bool eager = false;      ///< a planted bug: a frame to a follower counts as acknowledged at once
  std::uint64_t steps = 3;
  std::uint64_t seed = 1;  ///< determines the order in which links deliver
};

/// A job's workers and shards with their protocols and nothing else. Links are queues, and a seed chooses the link that
/// delivers next. Payloads lie in their senders' memory, and answers are stored into the askers' memory, as over shared
/// memory. The job can be cut between any two frames: all links are lost, and all workers begin anew. Server k's
/// follower is server s + k.
class CutJob {
 public:
  explicit CutJob(const CutRules& rules);
  ~CutJob();

  /// Delivers up to `frames` frames, and returns how many there were. Passes on exceptions of the protocols.
  std::size_t run(std::size_t frames);
  /// True if all workers have made all their steps.
  bool done() const;
  /// Begins a new membership epoch. All frames on their way and the workers' state are lost, and so is the server or
  /// follower that is named: a lost server's follower takes its place, a lost follower begins with nothing. A worker
  /// that is named does not come back: the others get the first ranks.
  void cut(std::optional<net::Peer> lost = {});
  /// Begins a new membership epoch with the state of another job's servers, which have been cut. REQUIRES: no frame
  /// was delivered in this job, or in the other since the cut.
  void begin_with(CutJob& other);
  /// True if the server's follower could take its place.
  bool can_lose(std::size_t server) const { return followers_.at(server)->whole(); }

  const Layout& layout() const { return layout_; }
  server::Shard& shard(std::size_t rank) { return *shards_.at(rank); }
  server::Shard& follower(std::size_t rank) { return *follower_shards_.at(rank); }
  /// The workers' final parameters, all units one after the other, then all rows. REQUIRES: done, and all workers have
  /// the same.
  std::vector<float> parameters() const;
  /// True if a shard has kept memory of a worker of an earlier epoch, or has stored into it.
  bool knows_the_dead() const;
  /// The step that a worker began with in this epoch.
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
  std::uint32_t left_;                          ///< workers of the present epoch
  std::mt19937_64 order_;
};

}  // namespace psring::test
