#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include <psring/common/net/outbox.h>
#include <psring/server/shard.h>

namespace psring::server {

// A server may have a follower: a process with a shard of the same rank that is given, in order, all that changes the
// server's (state machine replication: Schneider, ACM Computing Surveys 22(4), 1990), and so has the same bits. What a
// shard answers leaves once the follower has all that the answer is due to. So whoever was told something by the server
// is told nothing else by its follower, which takes the server's place after begin_epoch(). Both are made anew in each
// membership epoch: it begins with all that the server has.

/// The server's side, around its shard: messages in, messages out. A pure state machine.
class Replication {
 public:
  Replication(Shard& shard, net::Peer follower) : shard_(shard), follower_(follower) {}

  net::Peer follower() const { return follower_; }

  /// In place of Shard::on_message. The follower speaks first: it is sent what the shard has, and the others' messages
  /// wait until it has taken that. Frames to the follower must not overtake each other. Throws protocol where the
  /// follower acknowledges what it was not sent.
  void on_message(net::Message message, std::vector<net::Outgoing>& out);
  /// In place of Shard::saved.
  void saved(std::vector<net::Outgoing>& out);

 private:
  void begin(std::vector<net::Outgoing>& out);
  void on_replicated(std::uint64_t frames, std::vector<net::Outgoing>& out);
  void handle(net::Message message, std::vector<net::Outgoing>& out);
  void pass_on(const net::Message& message, std::vector<net::Outgoing>& out);
  void hold(std::vector<net::Outgoing> replies, std::vector<net::Outgoing>& out);

  template <class T>
  using Due = std::deque<std::pair<std::uint64_t, T>>;  ///< in order: until so many frames are acknowledged

  Shard& shard_;
  const net::Peer follower_;
  std::uint64_t sent_ = 0;  ///< frames to the follower
  std::uint64_t acknowledged_ = 0;
  bool begun_ = false;
  std::uint64_t snapshot_ = 0;             ///< so many of them are the beginning
  std::deque<net::Message> waiting_;       ///< for the follower to have that
  Due<net::Outgoing> held_;                ///< answers
  Due<std::shared_ptr<const void>> kept_;  ///< of payloads on their way to the follower
};

/// The follower's side. What its shard would answer goes nowhere.
class Follower {
 public:
  Follower(Shard& shard, net::Peer primary) : shard_(shard), primary_(primary) {}

  /// Says that it is there.
  void begin(std::vector<net::Outgoing>& out) const { acknowledge(out); }
  /// Takes a frame of the server, and acknowledges it; any other peer's is a protocol error that is thrown.
  void on_message(net::Message message, std::vector<net::Outgoing>& out);
  /// Has its shard all that it began the epoch with? Else it cannot take the server's place.
  bool whole() const { return whole_; }

 private:
  void acknowledge(std::vector<net::Outgoing>& out) const;

  Shard& shard_;
  const net::Peer primary_;
  std::uint64_t taken_ = 0;
  bool whole_ = false;
};

}  // namespace psring::server
