#include <algorithm>
#include <iterator>
#include <utility>

#include <unistd.h>

#include <psring/common/base/text/error.h>
#include <psring/common/net/link_shaping.h>
#include <psring/common/net/reporting.h>
#include <psring/common/net/unix_socket.h>
#include <psring/ring/hier/group.h>
#include <psring/ring/ring_links.h>
#include <psring/ring/shm/group.h>
#include <psring/ring/shm/rendezvous.h>

namespace psring::ring {
namespace {

std::vector<net::Member> of_host(const std::vector<net::Member>& workers, const std::string& host_id) {
  std::vector<net::Member> near;
  std::copy_if(workers.begin(), workers.end(), std::back_inserter(near),
               [&](const net::Member& worker) { return worker.host_id == host_id; });
  return near;
}

/// A number for each worker's host: the place of the host's first worker.
std::vector<std::size_t> hosts_of(const std::vector<net::Member>& workers) {
  std::vector<std::size_t> hosts;
  for (const net::Member& worker : workers) {
    const auto first = std::find_if(workers.begin(), workers.end(),
                                    [&](const net::Member& other) { return other.host_id == worker.host_id; });
    hosts.push_back(static_cast<std::size_t>(first - workers.begin()));
  }
  return hosts;
}

}  // namespace

RingLinks::RingLinks(const net::JobKey& key, net::DataLinks::Options options, ByteLedger& ledger)
    : key_(key),
      options_(net::with_card(std::move(options))),
      ledger_(ledger),
      tcp_(net::make_tcp_channel({.key = key_,
                                  .self = options_.self,
                                  .encrypt = options_.encrypt,
                                  .streams = options_.streams,
                                  .silence = options_.silence,
                                  .refusals = options_.refusals})) {}

net::Addresses RingLinks::listen() {
  const std::string name = fmt::format("psring-{:016x}-ring-{}-{}", key_.job_id(), options_.self.peer.rank, ::getpid());
  listener_ = net::listen_unix(name);
  return {{"ring-shm", name}, {"ring-tcp", tcp_->listen(options_.bind)}};
}

void RingLinks::become(net::Identity self) {
  options_.self = self;
  tcp_->become(self);
}

std::unique_ptr<ProcessGroup> RingLinks::connect(const std::vector<net::Member>& workers, std::shared_ptr<Arena> arena,
                                                 LinkOptions options, const Deadline& deadline) {
  const auto far = std::find_if(workers.begin(), workers.end(),
                                [&](const net::Member& worker) { return worker.host_id != options_.host_id; });
  if (options_.way == net::Way::shm && far != workers.end())
    fail(ErrorKind::usage, "--transport shm: {} is on another host than {}", to_string(*far),
         to_string(options_.self.peer));
  const auto near = of_host(workers, options_.host_id);
  const bool messages = options_.way == net::Way::tcp || only_tcp(options_) || options.algorithm;
  const bool shares = std::any_of(workers.begin(), workers.end(), [&](const net::Member& worker) {
    return of_host(workers, worker.host_id).size() > 1;
  });
  const std::size_t rank = options_.self.peer.rank;
  if (far == workers.end() && !messages) return connect_shm(near, std::move(arena), options.group, deadline);
  if (!shares || messages) return connect_tcp(workers, std::move(options), deadline);
  std::unique_ptr<InnerGroup> host = connect_shm(near, std::move(arena), options.group, deadline);
  const GroupOptions group = options.group;
  return make_hierarchical_group(std::move(host), connect_tcp(workers, std::move(options), deadline), rank,
                                 hosts_of(workers), group);
}

std::unique_ptr<ProcessGroup> RingLinks::connect_host(const std::vector<net::Member>& workers,
                                                      std::shared_ptr<Arena> arena, GroupOptions options,
                                                      const Deadline& deadline) {
  return connect_shm(of_host(workers, options_.host_id), std::move(arena), std::move(options), deadline);
}

std::unique_ptr<InnerGroup> RingLinks::connect_shm(const std::vector<net::Member>& workers,
                                                   std::shared_ptr<Arena> arena, GroupOptions options,
                                                   const Deadline& deadline) {
  std::vector<net::Peer> peers;
  for (const net::Member& worker : workers) peers.push_back(worker.peer);
  ShmWorld world =
      meet_in_shared_memory(key_, options_.self, peers, std::move(listener_), workers.front().addresses.at("ring-shm"),
                            std::move(arena), deadline, options_.refusals);
  for (const net::Peer& peer : peers) world.workers.push_back(peer.rank);
  return make_shm_group(world, std::move(options));
}

std::unique_ptr<InnerGroup> RingLinks::connect_tcp(const std::vector<net::Member>& workers, LinkOptions options,
                                                   const Deadline& deadline) {
  listener_ = Fd();
  std::map<net::Peer, std::string> lower;
  std::set<net::Peer> all;
  for (const net::Member& worker : workers) {
    if (worker.peer == options_.self.peer) continue;
    all.insert(worker.peer);
    if (worker.peer < options_.self.peer) lower[worker.peer] = worker.addresses.at("ring-tcp");
  }
  tcp_->connect(lower, deadline);
  tcp_->await_links(all, deadline);
  std::vector<std::unique_ptr<net::Channel>> channels;
  channels.push_back(std::move(tcp_));
  if (options_.link) channels.front() = net::make_shaped_channel(std::move(channels.front()), options_.card);
  const auto over = [&](ByteLedger& ledger) {
    return net::make_poll_transport(options_.self.peer, key_.job_id(), std::move(channels), ledger);
  };
  transport_ = options_.frame_faults
                   ? net::make_disturbed_transport(options_.self, *options_.frame_faults, ledger_, over)
                   : over(ledger_);
  net::Transport* transport = transport_.get();
  if (options.events != nullptr) {
    reporting_ = net::make_reporting(*transport, *options.events);
    transport = reporting_.get();
  }
  return make_link_group(*transport, options_.self.peer.rank, workers.size(), std::move(options));
}

}  // namespace psring::ring
