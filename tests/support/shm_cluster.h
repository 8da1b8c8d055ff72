#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/channel.h>
#include <psring/common/net/shm/channel.h>

namespace psring::net::test {

inline Moment in(double from_now) { return SystemClock().now() + from_seconds(from_now); }

inline constexpr Peer kServer{Role::server, 0};
inline Peer worker(std::uint32_t rank) { return {Role::worker, rank}; }

inline std::unique_ptr<Transport> over(std::unique_ptr<Channel> channel, Peer self, const JobKey& key,
                                       ByteLedger& ledger) {
  std::vector<std::unique_ptr<Channel>> channels;
  channels.push_back(std::move(channel));
  return make_poll_transport(self, key.job_id(), std::move(channels), ledger);
}

/// Returns the error of a call that has to throw one.
inline Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  throw std::logic_error("nothing was thrown");
}

/// A name that no other test of this machine listens at.
inline std::string fresh_name(const JobKey& key) { return shm_name(key.job_id(), kServer); }

/// Does the server's work behind the scenes while clients connect. REQUIRES: they send no frames yet.
class Attendant {
 public:
  explicit Attendant(Transport& server) : server_(server), thread_([this] { run(); }) {}
  ~Attendant() { server_.wake(); }

 private:
  void run() {
    while (server_.receive(kNever)) {
    }
  }

  Transport& server_;
  std::jthread thread_;
};

/// One server and its workers, linked by shared memory within this process.
struct ShmCluster {
  explicit ShmCluster(std::size_t workers, std::size_t arena_bytes = std::size_t{64} << 20)
      : server(over(listen_shm({key, {kServer, 0}}, name), kServer, key, server_ledger)) {
    const Attendant attendant(*server);
    for (std::size_t i = 0; i < workers; ++i) {
      arenas.push_back(std::make_unique<Arena>(arena_bytes));
      ledgers.push_back(std::make_unique<ByteLedger>());
      const Peer self = worker(static_cast<std::uint32_t>(i));
      auto channel = connect_shm({key, {self, 0}}, *arenas[i], {{kServer, name}}, in(10));
      clients.push_back(over(std::move(channel), self, key, *ledgers[i]));
    }
  }

  JobKey key = JobKey::generate();
  std::string name = fresh_name(key);
  ByteLedger server_ledger;
  std::vector<std::unique_ptr<ByteLedger>> ledgers;
  std::vector<std::unique_ptr<Arena>> arenas;
  std::unique_ptr<Transport> server;
  std::vector<std::unique_ptr<Transport>> clients;
};

}  // namespace psring::net::test
