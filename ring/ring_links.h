#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/base/deadline.h>
#include <psring/common/base/fd.h>
#include <psring/common/device/arena.h>
#include <psring/common/net/tcp/channel.h>
#include <psring/common/proc/control_messages.h>
#include <psring/common/proc/data_links.h>
#include <psring/ring/link_group.h>
#include <psring/ring/process_group.h>

namespace psring::ring {

/// A worker's links to all other workers of its job, made from what the rendezvous knows, and the group over them:
/// through shared memory where all are on one host, over TCP where each is on its own, or where that, a link's rate or
/// an algorithm of messages was asked for; where some share hosts, through shared memory there and over TCP between.
class RingLinks {
 public:
  /// `ledger` counts what passes through TCP.
  RingLinks(const net::JobKey& key, net::DataLinks::Options options, ByteLedger& ledger);

  /// Listens; returns what others need in order to connect.
  net::Addresses listen();
  /// Before it connects: who this process is from now on, where it was told after it listened.
  void become(net::Identity self);
  /// Links to all of `workers`, ordered by rank, this one among them, and makes the group. `arena` is this rank's
  /// memory in it. The group must not outlive these links.
  /// Throws usage where shared memory is demanded of another host; unauthorised, timeout, peer_lost.
  std::unique_ptr<ProcessGroup> connect(const std::vector<net::Member>& workers, std::shared_ptr<Arena> arena,
                                        LinkOptions options, const Deadline& deadline);
  /// The same of those on this host alone, through shared memory whatever was asked for; ranks are theirs, in order.
  std::unique_ptr<ProcessGroup> connect_host(const std::vector<net::Member>& workers, std::shared_ptr<Arena> arena,
                                             GroupOptions options, const Deadline& deadline);

 private:
  std::unique_ptr<InnerGroup> connect_shm(const std::vector<net::Member>& workers, std::shared_ptr<Arena> arena,
                                          GroupOptions options, const Deadline& deadline);
  std::unique_ptr<InnerGroup> connect_tcp(const std::vector<net::Member>& workers, LinkOptions options,
                                          const Deadline& deadline);

  const net::JobKey key_;
  net::DataLinks::Options options_;
  ByteLedger& ledger_;
  Fd listener_;
  std::unique_ptr<net::TcpChannel> tcp_;
  std::unique_ptr<net::Transport> transport_;
};

}  // namespace psring::ring
