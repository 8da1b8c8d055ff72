#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/system/fd.h>
#include <psring/common/net/tcp/channel.h>
#include <psring/common/net/tcp/handshake.h>

namespace psring::net {

/// Accepts clients that prove the key, and refuses all others at bounded cost. Never waits. Belongs to one thread.
class TcpListener {
 public:
  /// A link whose streams are all open.
  struct Opened {
    Identity client;
    std::string where;
    std::vector<std::unique_ptr<TcpStream>> streams;
  };
  using MakeStream = std::function<std::unique_ptr<TcpStream>(Fd)>;  ///< makes a stream that epoll watches
  using Objection = std::function<std::string(Identity client)>;     ///< why a client may not be linked; "" if it may

  TcpListener(const TcpOptions& options, MakeStream make_stream);

  /// Sets the identity that later clients receive.
  void become(Identity self) { options_.self = self; }

  /// Listens, once. Returns HOST:PORT. Port 0: any.
  std::string listen(const std::string& host, std::uint16_t port);
  const Fd& socket() const { return socket_; }
  std::string endpoint() const;

  /// Notes epoll's event (edge-triggered) that clients wait to be accepted.
  void on_knock() { knocked_ = true; }
  /// Returns true if the last `serve` left clients to be accepted by the next call.
  bool crowded() const { return crowded_; }
  /// Continues all handshakes as far as is possible now. Returns the links that were completed.
  std::vector<Opened> serve(const Objection& objection);
  /// Drops clients whose handshake has not ended in time.
  void expire(Moment now);

 private:
  void accept();
  void admit(Fd socket);
  bool twice(const TcpStranger& candidate) const;
  std::vector<Opened> take_complete(const std::vector<std::pair<Identity, TcpPart>>& proved);

  TcpOptions options_;  ///< constant after construction, except `self`
  const MakeStream make_stream_;
  Fd socket_;
  bool knocked_ = false;
  bool crowded_ = false;
  std::deque<TcpStranger> strangers_;  ///< oldest first
};

}  // namespace psring::net
