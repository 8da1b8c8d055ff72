#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace psring::bench {

/// The options of `psring-bench push_pull`.
struct PushPullOptions {
  std::vector<std::size_t> sizes;  ///< bytes
  bool shm = true;
  bool tcp = true;
  bool encrypt = false;        ///< encrypt TCP; the baseline is then cppzmq under CURVE instead of a raw socket
  std::size_t iterations = 0;  ///< per round; 0: as many as move about 256 MiB, from 4 to 2000
  std::size_t warm_up = 2;
  std::size_t rounds = 7;
  std::size_t server_threads = 1;
  bool check = false;  ///< check all parameters after timing, too
  std::string json;    ///< file, or ""
};

/// Measures one server and one worker, two processes: a push, then a pull, each waited for, and both fused into one
/// round trip, for psring and its baselines in turn. Checks results against a plain loop before timing (and after, with
/// `check`); throws check_failed if a bit differs. Prints a table.
void bench_push_pull(const PushPullOptions& options);

}  // namespace psring::bench
