#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include <psring/common/base/clock.h>
#include <psring/common/base/system/fd.h>
#include <psring/common/base/system/mutex.h>
#include <psring/common/net/refusals.h>
#include <psring/common/net/zmq/socket.h>

struct zmq_msg_t;

namespace psring::net {

/// Bounds the resources that strangers (connections that have not proved the key) can use on a listening ZeroMQ socket.
/// ZeroMQ itself accepts and keeps every connection, and holds the parts of a message in memory until the last part
/// arrives. A separate thread enforces limits, so that descriptors and memory stay bounded even if the socket's owner
/// is busy.
class ZmqGate {
 public:
  static constexpr std::size_t kMost = 256;                           ///< default
  static constexpr Nanoseconds kPatience = std::chrono::seconds(30);  ///< default
  struct Limits {
    std::size_t most = kMost;          ///< the most strangers; a further stranger pushes out another (most_crowding)
    Nanoseconds patience = kPatience;  ///< the time that a stranger may stay
    /// The bytes that a stranger may send. With a limit, peers must wait for the listener's answer before they send
    /// more.
    std::uint64_t most_bytes = UINT64_MAX;
  };
  /// The handshakes of ZMTP, CURVE and handshake.h together need less than 2 KiB.
  static constexpr std::uint64_t kHandshakeBytes = 16384;

  /// Create the gate before the listener binds, and destroy it before the listener. `refusals` may be null.
  ZmqGate(ZmqContext& context, const ZmqSocket& listener, Refusals* refusals, const Limits& limits);
  ~ZmqGate();
  ZmqGate(const ZmqGate&) = delete;
  ZmqGate& operator=(const ZmqGate&) = delete;

  /// Marks a connection that has proved the key, so that it may stay. `connection`: its descriptor, see
  /// `connection_of`. Safe from any thread.
  void trust(int connection);
  /// Marks a connection whose proof of the key was wrong: it is counted so. Safe from any thread.
  void note_wrong_key(int connection);

 private:
  enum class Verdict : std::uint8_t { trusted, wrong_key };
  struct Stranger {
    std::uint64_t number = 0;  ///< counts all strangers
    int connection = -1;       ///< ZeroMQ's descriptor
    Fd held;                   ///< duplicate for the same socket: another file may reuse ZeroMQ's number
    std::uint64_t cookie = 0;  ///< the socket's, which no other socket gets
    std::uint64_t origin = 0;  ///< the client's host
    Moment deadline;
    bool wrong_key = false;
  };

  void serve(const std::stop_token& stop);
  void take_events(Moment now);
  void on_accepted(int connection, Moment now);
  void poll_arrivals();
  bool sent_too_much(const Stranger& stranger) const;
  void on_disconnected(int connection);
  void judge(int connection, Verdict verdict);
  std::optional<Verdict> verdict_of(const Stranger& stranger);
  void turn_away(Moment now);
  void turn_away(std::deque<Stranger>::iterator stranger);
  void turn_away_of_most();
  void drop_stale_verdicts();
  void hang_up(const Stranger& stranger);
  void count(const Stranger& stranger);
  void unwatch(const Stranger& stranger) const;

  Refusals* const refusals_;
  const Limits limits_;
  void* const listener_;
  ZmqSocket monitor_;
  const Fd wake_;
  const Fd arrivals_;                 ///< an epoll that reports strangers that have sent data
  std::deque<Stranger> strangers_;    ///< oldest first; used by the thread only, like the members below
  std::set<std::uint64_t> flooding_;  ///< strangers that sent too much
  std::uint64_t accepted_ = 0;
  std::uint64_t failed_proofs_ = 0;    ///< CURVE handshakes that failed by the key; their connections end next
  std::set<std::uint64_t> unmatched_;  ///< the cookies of verdicts_ at the end of the last round
  Mutex mutex_;
  /// By cookie, of sockets that may be strangers' still.
  std::map<std::uint64_t, Verdict> verdicts_ PSRING_GUARDED_BY(mutex_);
  std::jthread thread_;
};

/// Returns the descriptor of the connection through which a libzmq message arrived.
int connection_of(zmq_msg_t& message);

}  // namespace psring::net
