#pragma once

#include <cstddef>
#include <exception>
#include <filesystem>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <psring/bench/collectives.h>
#include <psring/bench/peers/processes.h>
#include <psring/bench/peers/psring_rank.h>
#include <psring/bench/timed_team.h>
#include <psring/common/proc/local_cluster.h>

namespace psring::bench {

/// The rank processes of one contestant, seen from the benchmark. Between tasks all of them sleep.
class Team final : public TimedTeam {
 public:
  /// Listens for the ranks; the caller then starts them with `control()`. `cluster` runs the processes as "`name` rank
  /// R", or their launcher as `name`.
  Team(std::string name, std::size_t ranks, LocalCluster& cluster, std::filesystem::path log_folder,
       const Clock& clock);

  std::string name() const override { return name_; }
  const std::string& control() const { return control_; }
  /// Waits until all ranks are ready. Throws the error that a rank reports; peer_lost, timeout.
  void await_ready();
  std::vector<std::string> ways(const CollectiveCall& call) override;
  Round measure(Task task) override;
  /// Tells the ranks to end.
  void end();

 private:
  struct Rank {
    Fd socket;
    std::optional<RankMessage> message;  ///< received, but not yet taken
  };

  void await_hellos(Moment deadline);
  /// Returns the next message of each rank.
  std::vector<RankMessage> receive_all(Moment deadline);
  void wait(std::span<const int> fds, Moment deadline);
  void listen_to(std::size_t rank);
  void send_all(Task task);
  [[noreturn]] void failed(std::size_t rank, const RankMessage& message);
  [[noreturn]] void lost(std::size_t rank);
  [[noreturn]] void ended(const ProcessExit& exit);
  std::string message_from(const ProcessExit& exit) const;

  const std::string name_;
  const std::string control_;
  LocalCluster& cluster_;
  const std::filesystem::path log_folder_;  ///< the cluster's
  const Clock& clock_;
  Fd listener_;
  Fd area_file_;
  SharedArea area_;
  std::vector<Rank> ranks_;
};

/// The teams of a benchmark, psring's first, with their resources. `ways`: the ways of psring. Throws usage, naming the
/// package to install, if a peer was not found when psring was built.
class Contestants {
 public:
  Contestants(const CollectivesOptions& options, const std::vector<PsringWay>& ways);
  ~Contestants();
  Contestants(const Contestants&) = delete;
  Contestants& operator=(const Contestants&) = delete;

  Team& psring() { return teams_.front(); }
  std::list<Team>& all() { return teams_; }

 private:
  void start_psring(const std::vector<PsringWay>& ways);
  void start_peer(const std::string& name);
  std::string peer_program(const std::string& name) const;
  Team& add(const std::string& name);

  const int exceptions_ = std::uncaught_exceptions();
  const CollectivesOptions& options_;
  const std::size_t max_bytes_;
  const SystemClock clock_;
  const BenchFolder folder_;
  std::list<Team> teams_;
  LocalCluster cluster_;
};

}  // namespace psring::bench
