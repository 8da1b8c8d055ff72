#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace psring::bench {

/// An algorithm and a segment size that psring's ranks use.
struct PsringWay {
  std::string algorithm =
      "auto";                     ///< or direct (shared memory), exchange, doubling, halving-doubling, ring, star (TCP)
  std::size_t segment_bytes = 0;  ///< 0: from the tuning table
};
/// Returns a text such as "ring:65536".
std::string to_string(const PsringWay& way);
PsringWay parse_psring_way(const std::string& text);

struct PsringRankOptions {
  std::string control;  ///< the benchmark's address
  std::string key_file;
  std::string transport = "auto";  ///< auto, shm or tcp
  std::size_t rank = 0;
  std::size_t max_bytes = 0;  ///< of a vector
  bool encrypt = false;
  std::size_t streams = 1;
  std::string link;               ///< shapes each rank's TCP links (net::parse_link); "": not shaped
  bool registered = true;         ///< vectors lie in the group's arena, if it has one
  std::vector<std::string> ways;  ///< each way has its own group
};

/// Runs a rank process of psring until the benchmark ends. Returns the exit status.
int run_psring_rank(const PsringRankOptions& options);

}  // namespace psring::bench
