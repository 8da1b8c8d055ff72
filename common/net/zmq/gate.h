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

/// Bounds what strangers cost a ZeroMQ socket that listens, which itself takes every connection and keeps it: of
/// those whose key is not proved at most kMost stay, one more pushes out the oldest, none stays longer than `patience`,
/// and none sends more than `most_bytes`: ZeroMQ holds the parts of a message in memory until its last one is there,
/// however many there are. A thread of its own does it, so that descriptors and memory stay bounded however busy the
/// socket's owner is.
class ZmqGate {
 public:
  static constexpr std::size_t kMost = 256;
  static constexpr Nanoseconds kPatience = std::chrono::seconds(5);  ///< where nothing else is said
  /// The handshakes of ZMTP, CURVE and handshake.h together take less than 2 KiB.
  static constexpr std::uint64_t kHandshakeBytes = 16384;

  /// Before the listener binds; ends before the listener does. `refusals` may be null. A limit of `most_bytes` needs
  /// peers that wait for the listener's answer before they send more.
  ZmqGate(ZmqContext& context, const ZmqSocket& listener, Refusals* refusals, Nanoseconds patience = kPatience,
          std::uint64_t most_bytes = UINT64_MAX);
  ~ZmqGate();
  ZmqGate(const ZmqGate&) = delete;
  ZmqGate& operator=(const ZmqGate&) = delete;

  /// This connection has proved the key and may stay: its descriptor, as messages that came through it know it
  /// (`connection_of`). From any thread.
  void trust(int connection);

 private:
  struct Stranger {
    std::uint64_t number = 0;  ///< of all that came
    int connection = -1;       ///< ZeroMQ's descriptor
    Fd held;                   ///< ours of the same socket: the number may be another's by the time it is to go
    Moment deadline;
  };

  void serve(const std::stop_token& stop);
  void take_events(const std::set<int>& trusted, Moment now);
  void on_accepted(int connection, Moment now);
  void look_at_arrivals();
  bool sent_too_much(const Stranger& stranger) const;
  bool forget(int connection);
  void turn_away(const std::set<int>& trusted, Moment now);
  void turn_away_oldest();
  void hang_up(const Stranger& stranger);
  void unwatch(const Stranger& stranger) const;

  Refusals* const refusals_;
  const Nanoseconds patience_;
  const std::uint64_t most_bytes_;
  void* const listener_;
  ZmqSocket monitor_;
  const Fd wake_;
  const Fd arrivals_;                 ///< an epoll: strangers that have sent something since it was looked at
  std::deque<Stranger> strangers_;    ///< oldest first; the thread's alone, as all below
  std::set<std::uint64_t> flooding_;  ///< strangers that sent too much
  std::uint64_t accepted_ = 0;
  std::mutex mutex_;
  std::set<int> trusted_;  ///< guarded by mutex_: since the thread looked
  std::jthread thread_;
};

/// The descriptor of the connection that a message, libzmq's, came through.
int connection_of(zmq_msg_t& message);

}  // namespace psring::net
