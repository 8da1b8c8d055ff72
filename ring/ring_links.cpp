#include <algorithm>
#include <utility>

#include <unistd.h>

#include <psring/common/base/error.h>
#include <psring/common/net/unix_socket.h>
#include <psring/ring/ring_links.h>
#include <psring/ring/shm_group.h>
#include <psring/ring/shm_rendezvous.h>

namespace psring::ring {

RingLinks::RingLinks(const net::JobKey& key, net::DataLinks::Options options)
    : key_(key), options_(std::move(options)) {}

net::Addresses RingLinks::listen() {
  const std::string name = fmt::format("psring-{:016x}-ring-{}-{}", key_.job_id(), options_.self.peer.rank, ::getpid());
  listener_ = net::listen_unix(name);
  return {{"ring-shm", name}};
}

std::unique_ptr<ProcessGroup> RingLinks::connect(const std::vector<net::Member>& workers, std::shared_ptr<Arena> arena,
                                                 LinkOptions options, Moment deadline) {
  for (const net::Member& worker : workers)
    if (worker.host_id != options_.host_id)
      fail(ErrorKind::usage, "{} is on another host: only shared memory is there yet", to_string(worker));
  std::vector<net::Peer> peers;
  for (const net::Member& worker : workers) peers.push_back(worker.peer);
  const ShmWorld world = meet_in_shared_memory(key_, options_.self, peers, listener_,
                                               workers.front().addresses.at("ring-shm"), std::move(arena), deadline);
  listener_ = Fd();
  return make_shm_group(world, std::move(options.group));
}

}  // namespace psring::ring
