#pragma once

#include <string>
#include <thread>
#include <vector>

#include <psring/common/net/key.h>

namespace psring::net {

/// The allow-list of CURVE: answers ZAP (ZeroMQ's RFC 27) requests of all sockets of one context, and lets in
/// exactly the clients whose public key is listed. At most one for a context; make it before the first socket
/// binds, and end it after the last is closed and before the context is.
class ZapAuthenticator {
 public:
  /// `zmq_context` is libzmq's handle; keys are Z85 text. Throws bug where the context has one already.
  ZapAuthenticator(void* zmq_context, std::vector<std::string> allowed_public_keys);
  ZapAuthenticator(const ZapAuthenticator&) = delete;
  ZapAuthenticator& operator=(const ZapAuthenticator&) = delete;

 private:
  std::jthread thread_;
};

/// Makes a libzmq socket that listens speak CURVE only, and only with whom the authenticator of its context lets
/// in. It is asked for as evidence: without one ZeroMQ would let everybody in. Call before bind.
void use_curve_server(void* zmq_socket, const CurveKeys& server, const ZapAuthenticator& authenticator);

/// Makes a libzmq socket that connects speak CURVE, only with the holder of `server_public_key`. Call before
/// connect.
void use_curve_client(void* zmq_socket, const CurveKeys& client, const std::string& server_public_key);

}  // namespace psring::net
