#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include <psring/common/base/clock.h>
#include <psring/common/net/key.h>
#include <psring/common/net/zmq/monitor.h>
#include <psring/common/net/zmq/socket.h>

namespace psring::net {

/// One connection of a member to the coordinator: a ZeroMQ DEALER that proves the job's key with CURVE. Belongs to one
/// thread.
class ControlSocket {
 public:
  /// `number` is different for each socket of the context.
  ControlSocket(const ZmqContext& context, const JobKey& key, int number);

  /// Begins to connect. Returns ZeroMQ's error text; nothing if the address is right.
  std::optional<std::string> connect(const std::string& address);

  /// Waits until a message or a change of the connection is there, one of the descriptors is readable, or `deadline`.
  /// Returns true if `stop_fd` is readable; -1: there is none.
  bool wait(int wake_fd, int stop_fd, Moment now, Moment deadline);

  struct Changes {
    bool closed = false;   ///< an open connection has broken
    bool refused = false;  ///< the coordinator does not accept the key
  };
  /// The changes of the connection since the last call.
  Changes take_changes();

  /// Reads the next message into `buffer`, cut off if it is longer; nothing if there is none.
  std::optional<std::span<const std::byte>> receive(std::span<std::byte> buffer);
  void send(std::span<const std::byte> message);
  /// The destructor waits for at most a second until the messages have left.
  void linger();

 private:
  ZmqSocket socket_;
  ZmqMonitor monitor_;
  bool open_ = false;
  int failed_handshakes_ = 0;
};

}  // namespace psring::net
