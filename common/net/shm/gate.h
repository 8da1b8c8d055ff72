#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include <sys/types.h>

#include <psring/common/base/clock.h>
#include <psring/common/base/system/fd.h>
#include <psring/common/net/handshake.h>
#include <psring/common/net/key.h>
#include <psring/common/net/refusals.h>
#include <psring/common/net/unix_socket.h>

namespace psring::net {

/// Adds a descriptor to an epoll. Throws data.
void watch(const Fd& epoll, const Fd& fd, std::uint32_t events);

/// The listening side of local sockets: lets the clients in that prove the job's key, many at a time, and never waits
/// for a client. Clients that have not proved the key stay until `handshake_timeout`; a client above the limit pushes
/// out a client of the process that has the most, so that silent strangers keep no member out.
class UnixGate {
 public:
  static constexpr std::size_t kMost = 1024;  ///< limit of clients that have not proved the key

  struct Options {
    JobKey key;
    Identity self;
    /// A job that starts more processes than the host has processors needs many seconds.
    Nanoseconds handshake_timeout = std::chrono::seconds(30);
    Refusals* refusals = nullptr;  ///< counts refused connections
  };
  /// Keeps a client that has proved the key, with the files that came with the proof: moves the socket, and returns it
  /// in its new place. Throws to refuse the client, which gets the reason, and leaves the socket in its place.
  using Admit = std::function<const Fd&(Identity client, Fd& socket, std::vector<Fd> files)>;

  UnixGate(Fd listener, Options options);

  /// Readable if `poll` has something to do.
  const Fd& wait_fd() const { return epoll_; }
  /// Advances all handshakes. Throws data if file descriptors have run out and no client can be turned away.
  void poll(const Admit& admit);
  void become(Identity self) { options_.self = self; }

 private:
  struct Client {
    Fd socket;
    pid_t process;  ///< that opened the connection; 0: unknown
    std::unique_ptr<ServerHandshake> handshake;
    Moment deadline;
  };
  enum class Next { wait, admitted, refused };

  void accept();
  void turn_one_away();
  Next advance(Client& client, const Admit& admit);

  Options options_;
  const Fd listener_;
  const Fd epoll_;
  std::list<Client> clients_;  ///< oldest first
};

}  // namespace psring::net
