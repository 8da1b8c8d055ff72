#pragma once

#include <string>
#include <thread>
#include <vector>

#include <psring/common/net/key.h>

namespace psring::net {

/// CURVE's allow-list: answers the ZAP requests (ZeroMQ's RFC 27) of all sockets of a context, and accepts exactly the
/// clients whose public key is listed. At most one per context. Create it before the first socket binds; destroy it
/// after the last socket and before the context.
class ZapAuthenticator {
 public:
  /// `zmq_context` is libzmq's handle; keys are Z85 text. Throws bug if the context already has an authenticator.
  ZapAuthenticator(void* zmq_context, std::vector<std::string> allowed_public_keys);
  ZapAuthenticator(const ZapAuthenticator&) = delete;
  ZapAuthenticator& operator=(const ZapAuthenticator&) = delete;

 private:
  std::jthread thread_;
};

/// Makes a listening libzmq socket accept only CURVE clients that the context's authenticator allows. The parameter
/// proves that an authenticator exists: without one, ZeroMQ would accept every client. Call before bind.
void use_curve_server(void* zmq_socket, const CurveKeys& server, const ZapAuthenticator& authenticator);

/// Makes a connecting libzmq socket use CURVE, and connect only to the holder of `server_public_key`. Call before
/// connect.
void use_curve_client(void* zmq_socket, const CurveKeys& client, const std::string& server_public_key);

}  // namespace psring::net
