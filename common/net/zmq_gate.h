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
#include <psring/common/net/zmq_socket.h>

struct zmq_msg_t;

namespace psring::net {

/// Bounds what strangers cost a ZeroMQ socket that listens, which itself takes every connection and keeps it: of
/// those whose key is not proved at most kMost stay, one more pushes out the oldest, and none stays longer than
/// `patience`. A thread of its own does it, so that descriptors stay bounded however busy the socket's owner is.
class ZmqGate {
 public:
  static constexpr std::size_t kMost = 256;
  static constexpr Nanoseconds kPatience = std::chrono::seconds(5);  ///< where nothing else is said

  /// Before the listener binds; ends before the listener does. `refusals` may be null.
  ZmqGate(ZmqContext& context, const ZmqSocket& listener, Refusals* refusals, Nanoseconds patience = kPatience);
  ~ZmqGate();
  ZmqGate(const ZmqGate&) = delete;
  ZmqGate& operator=(const ZmqGate&) = delete;

  /// This connection has proved the key and may stay: its descriptor, as messages that came through it know it
  /// (`connection_of`). From any thread.
  void trust(int connection);

 private:
  struct Stranger {
    int connection = -1;  ///< ZeroMQ's descriptor
    Fd held;              ///< ours of the same socket: the number may be another's by the time it is to go
    Moment deadline;
  };

  void serve(const std::stop_token& stop);
  void take_events(const std::set<int>& trusted, Moment now);
  void on_accepted(int connection, Moment now);
  bool forget(int connection);
  void turn_away(const std::set<int>& trusted, Moment now);
  void turn_away_oldest();

  Refusals* const refusals_;
  const Nanoseconds patience_;
  void* const listener_;
  ZmqSocket monitor_;
  const Fd wake_;
  std::deque<Stranger> strangers_;  ///< oldest first; the thread's alone
  std::mutex mutex_;
  std::set<int> trusted_;  ///< guarded by mutex_: since the thread looked
  std::jthread thread_;
};

/// The descriptor of the connection that a message, libzmq's, came through.
int connection_of(zmq_msg_t& message);

}  // namespace psring::net
