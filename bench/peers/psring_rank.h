#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <psring/bench/peers/rank.h>
#include <psring/common/net/key.h>
#include <psring/common/proc/data_links.h>
#include <psring/ring/group_options.h>

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

/// The silence of a measured link before it is lost: a rank is silent while other links are measured.
inline constexpr std::chrono::hours kSilence{1};

/// The links of one rank to all others.
struct PsringRanks {
  /// Sends this rank's bytes, and returns those of all ranks.
  using Exchange = std::function<std::vector<std::vector<std::byte>>(std::span<const std::byte>)>;

  net::JobKey key;
  net::DataLinks::Options links;
  ring::GroupOptions group = {};
  Exchange exchange;
};
/// Returns psring's collectives, ready to be called: all ranks have connected. Uses the ways, the longest vector and
/// `registered` of the options.
std::unique_ptr<RankLibrary> connect_psring(const PsringRanks& ranks, const PsringRankOptions& options);

/// Runs a rank process of psring until the benchmark ends. Returns the exit status.
int run_psring_rank(const PsringRankOptions& options);

}  // namespace psring::bench
