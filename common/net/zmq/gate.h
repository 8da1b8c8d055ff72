#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include <psring/common/base/clock.h>
#include <psring/common/base/fd.h>
#include <psring/common/net/refusals.h>
#include <psring/common/net/zmq/socket.h>

struct zmq_msg_t;

namespace psring::net {

/// Bounds the resources that strangers (connections that have not proved the key) can use on a listening ZeroMQ socket.
/// ZeroMQ itself accepts and keeps every connection, and holds the parts of a message in memory until the last part
/// arrives. At most kMost strangers stay; a further stranger evicts the oldest. A stranger may stay at most `patience`,
/// and send at most `most_bytes`. A separate thread enforces these limits, so that descriptors and memory stay bounded
/// even if the socket's owner is busy.
class ZmqGate {
 public:
  static constexpr std::size_t kMost = 256;
  static constexpr Nanoseconds kPatience = std::chrono::seconds(5);  ///< default
  /// The handshakes of ZMTP, CURVE and handshake.h together need less than 2 KiB.
  static constexpr std::uint64_t kHandshakeBytes = 16384;

  /// Create the gate before the listener binds, and destroy it before the listener. `refusals` may be null. With a
  /// limit of `most_bytes`, peers must wait for the listener's answer before they send more.
  ZmqGate(ZmqContext& context, const ZmqSocket& listener, Refusals* refusals, Nanoseconds patience = kPatience,
          std::uint64_t most_bytes = UINT64_MAX);
  ~ZmqGate();
  ZmqGate(const ZmqGate&) = delete;
  ZmqGate& operator=(const ZmqGate&) = delete;

  /// Marks a connection that has proved the key, so that it may stay. `connection`: its descriptor, see
  /// `connection_of`. Safe from any thread.
  void trust(int connection);

 private:
  struct Stranger {
    std::uint64_t number = 0;  ///< counts all strangers
    int connection = -1;       ///< ZeroMQ's descriptor
    Fd held;                   ///< duplicate for the same socket: another file may reuse ZeroMQ's number
    std::uint64_t cookie = 0;  ///< the socket's, which no other socket gets
    Moment deadline;
  };

  void serve(const std::stop_token& stop);
  void take_events(Moment now);
  void on_accepted(int connection, Moment now);
  void poll_arrivals();
  bool sent_too_much(const Stranger& stranger) const;
  void on_disconnected(int connection);
  bool is_trusted(const Stranger& stranger);
  void turn_away(Moment now);
  void turn_away_oldest();
  void drop_stale_trust();
  void hang_up(const Stranger& stranger);
  void unwatch(const Stranger& stranger) const;

  Refusals* const refusals_;
  const Nanoseconds patience_;
  const std::uint64_t most_bytes_;
  void* const listener_;
  ZmqSocket monitor_;
  const Fd wake_;
  const Fd arrivals_;                 ///< an epoll that reports strangers that have sent data
  std::deque<Stranger> strangers_;    ///< oldest first; used by the thread only, like the members below
  std::set<std::uint64_t> flooding_;  ///< strangers that sent too much
  std::uint64_t accepted_ = 0;
  std::set<std::uint64_t> unmatched_;  ///< trusted_ at the end of the last round
  std::mutex mutex_;
  std::set<std::uint64_t> trusted_;  ///< guarded by mutex_: cookies that were trusted, and may be strangers' still
  std::jthread thread_;
};

/// Returns the descriptor of the connection that a libzmq message came through.
int connection_of(zmq_msg_t& message);

}  // namespace psring::net
