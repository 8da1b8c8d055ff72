#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <psring/common/net/zmq/socket.h>

namespace psring::net {

/// Monitors the connection of a socket that connects to one endpoint. Destroy the monitor before the socket.
class ZmqMonitor {
 public:
  enum class Event : std::uint8_t {
    refused,   ///< no process listens there yet; ZeroMQ will retry
    ready,     ///< connected, and CURVE's handshake, if any, is done
    denied,    ///< the key is not on the allow-list
    rejected,  ///< the security handshake failed for another reason
    closed,    ///< the connection ended
  };

  /// `name` must be unique in the context. `on_connected`: given the descriptor of each connection, by `next`, before
  /// its handshake is ready; may be empty.
  ZmqMonitor(void* context, const ZmqSocket& socket, const std::string& name,
             std::function<void(int)> on_connected = {});

  ~ZmqMonitor();
  ZmqMonitor(const ZmqMonitor&) = delete;
  ZmqMonitor& operator=(const ZmqMonitor&) = delete;

  /// Returns the next event, or nothing for now.
  std::optional<Event> next();
  const ZmqSocket& socket() const { return socket_; }

 private:
  void* watched_;
  std::function<void(int)> on_connected_;
  ZmqSocket socket_;
};

}  // namespace psring::net
