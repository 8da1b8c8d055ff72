#pragma once

#include <memory>
#include <vector>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/base/deadline.h>
#include <psring/common/base/system/fd.h>
#include <psring/common/device/arena.h>
#include <psring/common/net/tcp/channel.h>
#include <psring/common/proc/control/control_messages.h>
#include <psring/common/proc/data_links.h>
#include <psring/ring/link/group.h>
#include <psring/ring/process_group.h>

namespace psring::ring {

/// A worker's links to all other workers of its job, made from the addresses of the rendezvous, and the group over
/// them. The group uses shared memory if all workers are on one host; TCP if each worker has a host of its own, or if
/// TCP, a link's rate or an algorithm for messages was asked for; both (hier/) if some workers share hosts.
class RingLinks {
 public:
  /// `ledger` counts the bytes that pass through TCP.
  RingLinks(const net::JobKey& key, net::DataLinks::Options options, ByteLedger& ledger);

  /// Listens; returns the addresses to which others connect.
  net::Addresses listen();
  /// Sets this process's identity, if it became known only after `listen`. REQUIRES: not connected.
  void become(net::Identity self);
  /// Links to all of `workers`, ordered by rank, this one among them, and makes the group. `arena`: this rank's memory
  /// in the group. The group must not outlive these links. Throws usage if shared memory is demanded between hosts;
  /// unauthorised, timeout, peer_lost.
  std::unique_ptr<ProcessGroup> connect(const std::vector<net::Member>& workers, std::shared_ptr<Arena> arena,
                                        LinkOptions options, const Deadline& deadline);
  /// Makes a group of the workers on this host alone, always through shared memory, in the order of their ranks.
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
  std::unique_ptr<net::Transport> reporting_;  ///< wraps transport_ if the events have listeners
};

}  // namespace psring::ring
