#pragma once

#include <memory>
#include <set>
#include <vector>

#include <psring/common/net/tcp/channel.h>
#include <psring/tests/support/shm_cluster.h>

namespace psring::net::test {

/// One server and its workers, linked by TCP within this process.
struct TcpCluster {
  explicit TcpCluster(std::size_t workers, std::size_t streams = 1, bool encrypt = false) {
    auto listener = make_tcp_channel({.key = key, .self = {kServer, 0}, .encrypt = encrypt});
    const std::string endpoint = listener->listen("127.0.0.1");
    std::set<Peer> peers;
    for (std::size_t i = 0; i < workers; ++i) peers.insert(worker(static_cast<std::uint32_t>(i)));
    std::jthread server_thread([&] { listener->await_links(peers, in(20)); });
    for (const Peer self : peers) {
      ledgers.push_back(std::make_unique<ByteLedger>());
      auto channel = make_tcp_channel({.key = key, .self = {self, 0}, .encrypt = encrypt, .streams = streams});
      channel->connect({{kServer, endpoint}}, in(20));
      clients.push_back(over(std::move(channel), self, key, *ledgers.back()));
    }
    server_thread.join();
    server = over(std::move(listener), kServer, key, server_ledger);
  }

  JobKey key = JobKey::generate();
  ByteLedger server_ledger;
  std::vector<std::unique_ptr<ByteLedger>> ledgers;
  std::unique_ptr<Transport> server;
  std::vector<std::unique_ptr<Transport>> clients;
};

}  // namespace psring::net::test
