#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <psring/bench/peers/psring_rank.h>
#include <psring/bench/timed_team.h>
#include <psring/common/proc/role_options.h>

namespace psring::bench {

/// Ranks on several hosts: the workers of a `psring coordinator`, each of which runs the same benchmark, with the same
/// options. This process is one of them, and all make the same calls of this class. The link's shape, encryption and
/// sockets are those of the coordinator's job.
class HostTeam final : public TimedTeam {
 public:
  /// Returns once all workers of the job have joined and connected. Throws as a worker that joins a job does.
  /// `options`: see connect_psring.
  HostTeam(const RoleOptions& role, PsringRankOptions options);
  ~HostTeam() override;

  std::size_t rank() const;
  std::size_t ranks() const;
  /// Describes the network: "hosts, encrypted", "link 100 Mbit/s, 1 ms".
  std::string network() const;

  std::string name() const override { return "psring"; }
  std::vector<std::string> ways(const CollectiveCall& call) override;
  /// Returns the same figures at all ranks.
  Round measure(Task task) override;
  void in_turn(const std::function<void()>& work) override;
  /// Tells the coordinator that this rank is done; the last call.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The text of HostTeam::network and of a Fit: `where` ("loopback", "hosts") unless the links are shaped.
std::string describe_network(const std::string& where, const std::string& link, bool encrypt, std::size_t streams);

}  // namespace psring::bench
