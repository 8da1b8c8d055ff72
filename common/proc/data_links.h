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
#include <psring/common/proc/control_messages.h>

namespace psring::net {

/// Which way tensors take between two processes.
enum class Way : std::uint8_t { automatic, shm, tcp };

/// `auto`, `shm` or `tcp`; throws usage, naming --transport, for anything else.
Way parse_way(const std::string& text);

/// A process's data links, made from what the rendezvous knows: listens and connects, by shared memory
/// where both are on one host and nothing else was asked for, by ZeroMQ otherwise; with a link to simulate, by ZeroMQ
/// shaped to it, as if each process were a host of its own; then `transport` is
/// what the process talks through.
class DataLinks {
 public:
  struct Options {
    Identity self;
    Way way = Way::automatic;
    bool encrypt = false;
    std::string bind = "127.0.0.1";  ///< address of the interface that is listened at
    std::string host_id;
    Nanoseconds silence = std::chrono::seconds(10);  ///< after which a TCP link is lost
    std::size_t streams = 1;                         ///< sockets of each link of the ring
    std::optional<LinkSpec> link{};                  ///< what links are shaped to
    /// What happens to frames of this process: its links, and all others of the job, are reliable, and over TCP.
    std::optional<FrameFaults> frame_faults{};
    /// The network card of such a link, shared by all links of the process; null: these links have one of their own.
    std::shared_ptr<LinkShaper> card = nullptr;
    Refusals* refusals = nullptr;  ///< counts connections that come to nothing; null: nobody does
  };

  DataLinks(const JobKey& key, Options options, ByteLedger& ledger);
  ~DataLinks();

  /// Another role of this process is reached through `local`. Before all else.
  void share_process(std::shared_ptr<LocalLink> local) { local_ = std::move(local); }
  /// Listens; returns what others need in order to connect.
  Addresses listen();
  /// Another than the options said; after `listen`, before `connect`.
  void become(Identity self);
  /// Links to all of `members`. `arena` is what this process lends them by shared memory.
  /// Throws usage where shared memory is demanded of another host, or of a shaped link; else as the channels do.
  void connect(const std::vector<Member>& members, Arena& arena, const Deadline& deadline);
  /// After the last `listen` and `connect`: the transport over all links.
  Transport& transport();

 private:
  const JobKey key_;
  Options options_;
  ByteLedger& ledger_;
  ZmqContext context_;
  std::optional<ZapAuthenticator> authenticator_;
  std::shared_ptr<LocalLink> local_;  ///< shared by the roles of this process; null: it has one role
  std::unique_ptr<Channel> local_end_;
  std::unique_ptr<ZmqChannel> zmq_;
  std::vector<std::unique_ptr<Channel>> shm_;
  std::unique_ptr<Transport> transport_;
};

/// Is shared memory no way for these, even between processes of one host?
bool only_tcp(const DataLinks::Options& options);
/// These, with a network card where they name a link and have none.
DataLinks::Options with_card(DataLinks::Options options);

}  // namespace psring::net
