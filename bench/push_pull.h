#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace psring::bench {

/// What `psring-bench push_pull` is asked for.
struct PushPullOptions {
  std::vector<std::size_t> sizes;  ///< bytes
  bool shm = true;
  bool tcp = true;
  bool encrypt = false;        ///< of tcp; the baseline is then cppzmq under CURVE, else a raw socket
  std::size_t iterations = 0;  ///< a round; 0: as many as move about 256 MiB, at least 4 and at most 2000
  std::size_t warm_up = 2;
  std::size_t rounds = 7;
  std::size_t server_threads = 1;
  bool check = false;  ///< compare all parameters after timing, too
  std::string json;    ///< file, or ""
};

/// One server and one worker, two processes: times a push that is waited for, then a pull, and the two fused into
/// one round trip, for psring and its baselines in turn. Results are compared with a plain loop's before
/// anything is timed (and after, with `check`); throws check_failed where a bit differs. Prints a table.
void bench_push_pull(const PushPullOptions& options);

}  // namespace psring::bench
