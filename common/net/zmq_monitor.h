#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <psring/common/net/zmq_socket.h>

namespace psring::net {

/// Watches the connection below a socket that connects to one endpoint.
class ZmqMonitor {
 public:
  enum class Event : std::uint8_t {
    refused,   ///< nobody listens there yet; ZeroMQ will try again
    ready,     ///< connected, and CURVE's handshake, if any, is done
    rejected,  ///< the security handshake failed
    closed,    ///< the connection ended
  };

  /// `name` is unique in the context.
  ZmqMonitor(void* context, const ZmqSocket& socket, const std::string& name);

  /// The next event, or nothing for now.
  std::optional<Event> next();
  const ZmqSocket& socket() const { return socket_; }

 private:
  ZmqSocket socket_;
};

}  // namespace psring::net
