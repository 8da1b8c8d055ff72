#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/base/deadline.h>
#include <psring/common/device/arena.h>
#include <psring/common/net/handshake.h>
#include <psring/common/net/key.h>
#include <psring/common/net/link_shaping.h>
#include <psring/common/net/local_link.h>
#include <psring/common/net/refusals.h>
#include <psring/common/net/sim/faulty.h>
#include <psring/common/net/transport.h>
#include <psring/common/net/zmq/channel.h>
#include <psring/common/net/zmq/zap.h>
#include <psring/common/proc/control/control_messages.h>

namespace psring::net {

/// The transport of tensors between two processes.
enum class Way : std::uint8_t { automatic, shm, tcp };

/// `auto`, `shm` or `tcp`; throws usage, naming --transport, for anything else.
Way parse_way(const std::string& text);

/// A process's data links, made from the addresses of the rendezvous. Two processes of one host are linked by shared
/// memory, unless the options say otherwise, and by ZeroMQ if not. If a link is to be simulated, all links are shaped
/// ZeroMQ links, as if each process were a host of its own. `transport` then carries the frames over all links.
class DataLinks {
 public:
  struct Options {
    Identity self;
    Way way = Way::automatic;
    bool encrypt = false;
    std::string bind = "127.0.0.1";  ///< the address to listen at
    std::string host_id;
    Nanoseconds silence = std::chrono::seconds(10);  ///< the silence after which a TCP link is lost
    std::size_t streams = 1;                         ///< sockets of each link of the ring
    std::optional<LinkSpec> link{};                  ///< the link to simulate; none: links are not shaped
    /// The faults of this process's frames. If set, all links of the job are reliable links over TCP.
    std::optional<FrameFaults> frame_faults{};
    /// The network card of a simulated link, shared by all links of the process; null: these links have their own.
    std::shared_ptr<LinkShaper> card = nullptr;
    Refusals* refusals = nullptr;  ///< counts connections that do not become links; null: they are not counted
  };

  DataLinks(const JobKey& key, Options options, ByteLedger& ledger);
  ~DataLinks();

  /// Another role of this process is reached through `local`. Called before all other calls.
  void share_process(std::shared_ptr<LocalLink> local);
  /// Listens, and returns the addresses for others to connect to.
  Addresses listen();
  /// Sets another identity than the options; called after `listen`, before `connect`.
  void become(Identity self);
  /// Links to all of `members`, which share the memory of `arena` over shared-memory links. Throws usage if the options
  /// demand shared memory for another host or for a shaped link; throws the channels' errors, too.
  void connect(const std::vector<Member>& members, Arena& arena, const Deadline& deadline);
  /// The transport over all links; called after the last `listen` and `connect`.
  Transport& transport();

 private:
  const JobKey key_;
  Options options_;
  ByteLedger& ledger_;
  ZmqContext context_;
  std::optional<ZapAuthenticator> authenticator_;
  std::shared_ptr<LocalLink> local_;  ///< shared by the roles of this process; null: the process has one role
  std::unique_ptr<Channel> local_end_;
  std::unique_ptr<ZmqChannel> zmq_;
  std::vector<std::unique_ptr<Channel>> shm_;
  std::unique_ptr<Transport> transport_;
};

/// Do these options forbid shared memory, even between processes of one host?
bool only_tcp(const DataLinks::Options& options);
/// The options with a network card, if they name a link to simulate.
DataLinks::Options with_card(DataLinks::Options options);

}  // namespace psring::net
