#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <psring/bench/collective_call.h>
#include <psring/common/base/dtype.h>
#include <psring/ring/reduce_op.h>

namespace psring::bench {

/// What `psring-bench all_reduce` and the others are asked for.
struct CollectivesOptions {
  std::vector<CollectiveKind> kinds;
  std::vector<std::size_t> sizes;  ///< bytes of the longest vector of a rank
  DType dtype = DType::f32;
  ring::ReduceOp::Kind redop = ring::ReduceOp::Kind::sum;
  std::size_t root = 0;
  std::size_t workers = 2;
  std::size_t iterations = 0;  ///< a round; 0: as many as take about a tenth of a second, at least 5, at most 1000
  std::size_t warm_up = 5;
  std::size_t rounds = 7;
  bool check = false;
  std::string transport = "auto";  ///< of psring; with tcp the peers are restricted to it, too
  std::string algorithm = "auto";
  std::size_t segment_bytes = 0;
  bool encrypt = false;
  std::size_t streams = 1;  ///< sockets of each of psring's TCP links
  bool registered = true;
  std::vector<std::string> peers;  ///< openmpi, mpich, gloo
  std::string json;                ///< file, or ""
  std::string tune;                ///< file, or ""
};

/// Times collectives of psring and its peers, each with ranks of its own, which are processes and sleep while another
/// contestant is measured. All are measured at each size, in turn, round by round.
///
/// An iteration is the same for all: every rank rewrites its input (gradients are new, too), a barrier of the
/// benchmark's own, the clock, the call, the clock, the result is read. Its time is the slowest rank's between the
/// clocks, `loop` counts the rewriting and the reading as well; a round's time is the median of its iterations',
/// and the median of the rounds' and their spread (largest less smallest, over the median) are reported. A ratio is a
/// peer's time over psring's, the median of the rounds'. Where a contestant has several ways, its fastest counts.
///
/// algbw is size over time, busbw that times nccl-tests' factor: 2(n-1)/n for all_reduce, (n-1)/n for reduce_scatter,
/// all_gather and all_to_all, 1 for the others. For collectives in which each rank has a part of a vector, size is
/// the whole vector's and count the part's.
///
/// The limit is the time, from the first rank's start to the last one's end, in which the ranks, all at once and each
/// in its own vector, read and write as many bytes as the call makes them touch at least where all share memory:
/// CollectiveCall::traffic; for all_reduce of M bytes each of n ranks reads n M/n and writes n M/n.
///
/// Results are compared before the first round, and with `check` after the last iteration of each; every element that
/// differs counts. Throws check_failed, after the report, where there is one.
void bench_collectives(const CollectivesOptions& options);

/// Measures every algorithm of all_reduce over TCP in messages of several sizes, and writes the table of the fastest
/// to `options.tune`; rows for other numbers of ranks are kept as they are.
void tune_all_reduce(const CollectivesOptions& options);

}  // namespace psring::bench
