// Ranks of a host that meet in shared memory: with more descriptors than the kernel keeps for a user at a time, and
// among strangers.
#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <psring/common/base/text/error.h>
#include <psring/common/net/unix_socket.h>
#include <psring/ring/shm/rendezvous.h>

using namespace psring;

namespace {

constexpr std::size_t kRanks = 20;
constexpr rlim_t kDescriptors = 80;  // enough for each rank, and far fewer than kRanks * kRanks

/// A rank's life, in a process of its own, without the right to exceed limits. Returns its exit status.
int meet(const net::JobKey& key, const std::vector<net::Peer>& peers, std::size_t rank, const std::string& name,
         Fd listener) {
  const rlimit limit{kDescriptors, kDescriptors};
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 2;
  try {
    const auto world =
        ring::meet_in_shared_memory(key, {peers[rank], 0}, peers, std::move(listener), name,
                                    std::make_shared<Arena>(4096), SystemClock().now() + std::chrono::seconds(60));
    return world.size() == kRanks && world.control ? 0 : 3;
  } catch (const Error& error) {
    fmt::print(stderr, "rank {}: {}\n", rank, error.what());
    return 1;
  }
}

}  // namespace

TEST_CASE("as many ranks on a host as their limits of open files allow") {
  // The local sockets' user is checked, so all ranks are of one; root would not be bound by the limit.
  const pid_t all = ::fork();
  if (all == 0) {
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) ::_exit(4);
    const net::JobKey key = net::JobKey::generate();
    std::vector<net::Peer> peers;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) peers.push_back({net::Role::worker, rank});
    const std::string name = fmt::format("psring-test-descriptors-{}", ::getpid());
    Fd listener = net::listen_unix(name);
    for (std::size_t rank = 0; rank < kRanks; ++rank)
      if (::fork() == 0) ::_exit(meet(key, peers, rank, name, std::move(listener)));
    int worst = 0;
    for (int status = 0; ::wait(&status) > 0;) worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 9);
    ::_exit(worst);
  }
  int status = 0;
  REQUIRE(::waitpid(all, &status, 0) == all);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("strangers who say nothing keep no rank out") {
  const net::JobKey key = net::JobKey::generate();
  const std::vector<net::Peer> peers{{net::Role::worker, 0}, {net::Role::worker, 1}};
  const std::string name = fmt::format("psring-test-strangers-{}", ::getpid());
  Fd listener = net::listen_unix(name);
  const Moment soon = SystemClock().now() + std::chrono::seconds(60);
  std::vector<Fd> strangers(100);  // each of which could delay a listener that hears one client at a time
  for (Fd& stranger : strangers) stranger = net::connect_unix(name, soon);
  const auto join = [&](std::size_t rank, Fd at) {
    return ring::meet_in_shared_memory(key, {peers[rank], 0}, peers, std::move(at), name, std::make_shared<Arena>(4096),
                                       soon);
  };
  auto other = std::async(std::launch::async, [&] { return join(1, Fd()); });
  CHECK(join(0, std::move(listener)).size() == 2);
  CHECK(other.get().size() == 2);
}
