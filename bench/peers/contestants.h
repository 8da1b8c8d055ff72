#pragma once

#include <exception>
#include <filesystem>
#include <list>
#include <string>
#include <vector>

#include <psring/bench/collectives.h>
#include <psring/bench/peers/processes.h>
#include <psring/bench/peers/psring_rank.h>
#include <psring/bench/team.h>

namespace psring::bench {

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
