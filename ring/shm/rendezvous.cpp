#include <algorithm>

#include <poll.h>

#include <psring/common/base/text/error.h>
#include <psring/common/net/shm/gate.h>
#include <psring/common/net/shm/unix_handshake.h>
#include <psring/ring/shm/control.h>
#include <psring/ring/shm/rendezvous.h>

namespace psring::ring {
namespace {

constexpr std::size_t kFilesAtATime = net::kMaxPacketFds;

std::size_t rank_of(const std::vector<net::Peer>& peers, net::Peer peer) {
  const auto found = std::find(peers.begin(), peers.end(), peer);
  if (found == peers.end()) fail(ErrorKind::protocol, "{} is not one of this host's", to_string(peer));
  return static_cast<std::size_t>(found - peers.begin());
}

std::shared_ptr<const Mapping> map(const Fd& file) { return std::make_shared<const Mapping>(file, checked_size(file)); }

/// The part of the first rank.
ShmWorld gather_files(net::UnixGate& gate, const std::vector<net::Peer>& peers, ShmWorld world,
                      const Deadline& deadline) {
  const Fd control = make_memory_file("psring ring", ShmControl::file_bytes(peers.size()));
  world.control = map(control);
  std::vector<Fd> sockets(peers.size());
  std::vector<Fd> arenas(peers.size());
  std::size_t missing = peers.size() - 1;
  const auto admit = [&](net::Identity client, Fd& socket, std::vector<Fd> files) -> const Fd& {
    const std::size_t rank = rank_of(peers, client.peer);
    if (files.size() != 1 || rank == 0 || sockets[rank])
      fail(ErrorKind::protocol, "{} is not expected, or here already", to_string(client.peer));
    world.mappings[rank] = map(files.front());
    arenas[rank] = std::move(files.front());
    sockets[rank] = std::move(socket);
    --missing;
    return sockets[rank];
  };
  while (missing > 0) {
    if (!net::wait_for(gate.wait_fd(), POLLIN, deadline))
      fail(ErrorKind::timeout, "{} of {} workers of this host did not come to share memory", missing, peers.size());
    gate.poll(admit);
  }
  for (std::size_t r = 1; r < peers.size(); ++r) {
    std::vector<int> files{control.get()};
    for (std::size_t q = 0; q < peers.size(); ++q)
      if (q != r) files.push_back(q == 0 ? world.arena->fd() : arenas[q].get());
    for (std::size_t begin = 0; begin < files.size(); begin += kFilesAtATime) {
      const std::byte more{0};
      net::send_packet(sockets[r], {&more, 1},
                       std::span(files).subspan(begin, std::min(kFilesAtATime, files.size() - begin)));
    }
    // Serve one rank after another: the kernel limits the descriptors that a user has in flight to the number that a
    // process may open, and n ranks receive n descriptors each.
    net::receive_packet(sockets[r], deadline);
  }
  return world;
}

ShmWorld fetch_files(const net::JobKey& key, net::Identity self, const std::vector<net::Peer>& peers,
                     const std::string& name, ShmWorld world, const Deadline& deadline) {
  const Fd socket = net::connect_unix(name, deadline);
  const int arena = world.arena->fd();
  net::shake_hands(socket, key, self, peers.front(), name, {&arena, 1}, deadline);
  std::vector<Fd> files;
  while (files.size() < peers.size()) {
    net::Packet packet = net::receive_packet(socket, deadline);
    if (packet.fds.empty()) fail(ErrorKind::protocol, "{} sent no memory", to_string(peers.front()));
    for (Fd& file : packet.fds) files.push_back(std::move(file));
  }
  const std::byte all_came{0};
  net::send_packet(socket, {&all_came, 1});
  if (files.size() != peers.size() || checked_size(files.front()) != ShmControl::file_bytes(peers.size()))
    fail(ErrorKind::protocol, "{} sent other memory than is due", to_string(peers.front()));
  world.control = map(files.front());
  for (std::size_t q = 0, at = 1; q < peers.size(); ++q)
    if (q != world.rank) world.mappings[q] = map(files[at++]);
  return world;
}

}  // namespace

ShmWorld meet_in_shared_memory(const net::JobKey& key, net::Identity self, const std::vector<net::Peer>& peers,
                               Fd listener, const std::string& name, std::shared_ptr<Arena> arena,
                               const Deadline& deadline, net::Refusals* refusals) {
  ShmWorld world{rank_of(peers, self.peer), std::move(arena), {}, nullptr};
  world.mappings.resize(peers.size());
  if (world.rank == 0) {
    net::UnixGate gate(std::move(listener), {.key = key, .self = self, .refusals = refusals});
    return gather_files(gate, peers, std::move(world), deadline);
  }
  try {
    return fetch_files(key, self, peers, name, std::move(world), deadline);
  } catch (const Error& error) {
    throw error.with_context(fmt::format("{} (shared memory)", to_string(peers.front())));
  }
}

}  // namespace psring::ring
