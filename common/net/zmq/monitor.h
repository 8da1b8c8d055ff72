#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <psring/common/net/zmq/socket.h>

namespace psring::net {

/// Watches the connection below a socket that connects to one endpoint. Ends before that socket does.
class ZmqMonitor {
 public:
  enum class Event : std::uint8_t {
    refused,   ///< nobody listens there yet; ZeroMQ will try again
    ready,     ///< connected, and CURVE's handshake, if any, is done
    denied,    ///< the key is not on the list of who may
    rejected,  ///< the security handshake failed otherwise
    closed,    ///< the connection ended
  };

  /// `name` is unique in the context.
  ZmqMonitor(void* context, const ZmqSocket& socket, const std::string& name);

  ~ZmqMonitor();
  ZmqMonitor(const ZmqMonitor&) = delete;
  ZmqMonitor& operator=(const ZmqMonitor&) = delete;

  /// The next event, or nothing for now.
  std::optional<Event> next();
  const ZmqSocket& socket() const { return socket_; }

 private:
  void* watched_;
  ZmqSocket socket_;
};

}  // namespace psring::net
