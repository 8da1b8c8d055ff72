#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/fd.h>
#include <psring/common/net/tcp/channel.h>
#include <psring/common/net/tcp/handshake.h>

namespace psring::net {

/// Lets in whoever proves the key, and keeps the others out at bounded cost. Belongs to one thread, never waits.
class TcpListener {
 public:
  /// A link of which all streams are open.
  struct Opened {
    Identity client;
    std::string where;
    std::vector<std::unique_ptr<TcpStream>> streams;
  };
  using MakeStream = std::function<std::unique_ptr<TcpStream>(Fd)>;  ///< makes it watched
  using Objection = std::function<std::string(Identity client)>;     ///< why it may not be linked; "" where it may

  TcpListener(const TcpOptions& options, MakeStream make_stream);

  /// Who it says that it is to those who come from now on.
  void become(Identity self) { options_.self = self; }

  /// Once; returns HOST:PORT. Port 0: any.
  std::string listen(const std::string& host, std::uint16_t port);
  const Fd& socket() const { return socket_; }
  std::string endpoint() const;

  /// Somebody has knocked: epoll says so, edge-triggered.
  void on_knock() { knocked_ = true; }
  /// So many knock that the last `serve` left some for the next.
  bool crowded() const { return crowded_; }
  /// Goes on with all handshakes as far as is possible now; returns the links that were completed.
  std::vector<Opened> serve(const Objection& objection);
  /// Hangs up on those who have not come to an end in time.
  void expire(Moment now);

 private:
  void accept();
  void admit(Fd socket);
  bool twice(const TcpStranger& candidate) const;
  std::vector<Opened> take_complete(const std::vector<std::pair<Identity, TcpPart>>& proved);

  TcpOptions options_;  ///< constant but for `self`
  const MakeStream make_stream_;
  Fd socket_;
  bool knocked_ = false;
  bool crowded_ = false;
  std::deque<TcpStranger> strangers_;  ///< oldest first
};

}  // namespace psring::net
