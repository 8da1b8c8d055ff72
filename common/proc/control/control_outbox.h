#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace psring::net {

/// The messages that a member has to send to the coordinator, encoded, and the messages that it may have to send again
/// because the coordinator was lost. Pure: no socket and no time.
///
/// Heartbeats are numbered from 1, and the coordinator's answer to heartbeat n acknowledges all messages before it.
class ControlOutbox {
 public:
  using Bytes = std::vector<std::byte>;

  /// Sends a message once: it may be lost together with a connection.
  void send(Bytes message);
  /// Sends a message that every coordinator of this epoch needs: it is repeated to each of them until `end_epoch`.
  void send_standing(Bytes message);
  /// Sends a message that is repeated until it is acknowledged, if `repeat_unacknowledged` was called.
  void send_surely(Bytes message);
  /// The coordinator may be replaced: from now on, messages of send_surely are kept until they are acknowledged.
  void repeat_unacknowledged() { repeats_ = true; }
  /// No more messages can be sent.
  void close() { closed_ = true; }

  /// Returns the messages to send now, in order.
  std::vector<Bytes> take();
  /// Returns the number of a heartbeat that leaves after all messages that were taken.
  std::uint64_t add_heartbeat();
  /// The number that the next heartbeat will have.
  std::uint64_t next_heartbeat() const { return last_heartbeat_ + 1; }
  /// The coordinator has answered the heartbeat of this number.
  void acknowledge(std::uint64_t heartbeat);
  bool acknowledged(std::uint64_t heartbeat) const { return acknowledged_ >= heartbeat; }

  void end_epoch() { standing_.clear(); }
  /// A new connection begins: sends `hello`, then the standing messages if `in_epoch`, then all messages of send_surely
  /// that are not acknowledged. Other messages that had not left are dropped.
  void reconnect(Bytes hello, bool in_epoch);

 private:
  struct Heartbeat {
    std::uint64_t number = 0;
    std::uint64_t sent = 0;  ///< the number of messages of send_surely before the heartbeat
  };

  std::vector<Bytes> outgoing_;
  std::vector<Bytes> standing_;
  std::deque<Bytes> unacknowledged_;  ///< the last messages of send_surely
  std::uint64_t sent_ = 0;            ///< the number of messages of send_surely that were ever kept
  std::deque<Heartbeat> heartbeats_;  ///< heartbeats that are not answered yet
  std::uint64_t last_heartbeat_ = 0;
  std::uint64_t acknowledged_ = 0;  ///< the number of the last heartbeat that was answered
  bool repeats_ = false;
  bool closed_ = false;
};

}  // namespace psring::net
