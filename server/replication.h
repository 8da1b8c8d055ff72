#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include <psring/common/net/outbox.h>
#include <psring/server/shard.h>

namespace psring::server {

// Leader and follower. A server may have a follower: a process with a shard of the same rank. The server passes on, in
// order, every frame that changes its shard (state machine replication: Schneider, ACM Computing Surveys 22(4), 1990),
// so both shards have the same bits. The server sends an answer only when the follower has acknowledged every frame
// that led to this answer. So no process has received an answer that the follower would contradict, and the follower
// can take the server's place after begin_epoch(). Both objects are made anew in each membership epoch, which begins
// with a snapshot.

/// The server's side, around its shard. A pure state machine: messages in, messages out.
class Replication {
 public:
  Replication(Shard& shard, net::Peer follower) : shard_(shard), follower_(follower) {}

  net::Peer follower() const { return follower_; }

  /// Replaces Shard::on_message. The follower sends the first frame, and gets a snapshot of the shard; messages of
  /// others wait until the follower has taken the snapshot. Frames to the follower must not overtake each other. Throws
  /// protocol if the follower acknowledges frames that it was not sent.
  void on_message(net::Message message, std::vector<net::Outgoing>& out);
  /// Replaces Shard::saved.
  void saved(std::vector<net::Outgoing>& out);

 private:
  void begin(std::vector<net::Outgoing>& out);
  void on_replicated(std::uint64_t frames, std::vector<net::Outgoing>& out);
  void handle(net::Message message, std::vector<net::Outgoing>& out);
  void pass_on(const net::Message& message, std::vector<net::Outgoing>& out);
  void hold(std::vector<net::Outgoing> replies, std::vector<net::Outgoing>& out);

  /// Things that wait, in order, until the given number of frames is acknowledged.
  template <class T>
  using UntilAcknowledged = std::deque<std::pair<std::uint64_t, T>>;

  Shard& shard_;
  const net::Peer follower_;
  std::uint64_t sent_ = 0;            ///< frames sent to the follower
  std::uint64_t acknowledged_ = 0;    ///< frames that the follower has taken
  bool begun_ = false;                ///< the snapshot was sent
  std::uint64_t snapshot_ = 0;        ///< frames of the snapshot
  std::deque<net::Message> waiting_;  ///< messages that came before the follower had the snapshot
  UntilAcknowledged<net::Outgoing> held_answers_;
  UntilAcknowledged<std::shared_ptr<const void>> kept_payloads_;  ///< on their way to the follower
};

/// The follower's side. Drops the answers of its shard.
class Follower {
 public:
  Follower(Shard& shard, net::Peer primary) : shard_(shard), primary_(primary) { shard.follow(); }

  /// Tells the server that the follower is there.
  void begin(std::vector<net::Outgoing>& out) const { acknowledge(out); }
  /// Takes a frame of the server and acknowledges it. Throws protocol for a frame of any other peer.
  void on_message(net::Message message, std::vector<net::Outgoing>& out);
  /// True once the shard has the whole snapshot. Before that it cannot take the server's place.
  bool whole() const { return whole_; }

 private:
  void acknowledge(std::vector<net::Outgoing>& out) const;

  Shard& shard_;
  const net::Peer primary_;
  std::uint64_t taken_ = 0;
  bool whole_ = false;
};

}  // namespace psring::server
