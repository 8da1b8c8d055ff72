#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <psring/bench/collective_call.h>
#include <psring/common/base/dtype.h>
#include <psring/ring/reduce_op.h>

namespace psring::bench {

/// The options of `psring-bench all_reduce` and of the other collectives.
struct CollectivesOptions {
  std::vector<CollectiveKind> kinds;
  std::vector<std::size_t> sizes;  ///< bytes of the longest vector of a rank
  DType dtype = DType::f32;
  ring::ReduceOp::Kind redop = ring::ReduceOp::Kind::sum;
  std::size_t root = 0;
  std::size_t workers = 2;
  std::size_t iterations = 0;  ///< per round; 0: as many as take about 0.1 s, from 5 to 1000
  std::size_t warm_up = 5;
  std::size_t rounds = 7;
  bool check = false;
  std::string transport = "auto";  ///< of psring; tcp restricts the peers to TCP, too
  std::string algorithm = "auto";
  std::size_t segment_bytes = 0;
  bool encrypt = false;
  std::size_t streams = 1;  ///< sockets per TCP link of psring
  std::string link;         ///< shapes psring's TCP links, as if each rank were a host of its own; "": not shaped
  bool registered = true;
  std::vector<std::string> peers;  ///< openmpi, mpich, gloo
  std::string json;                ///< file, or ""
  std::string tune;                ///< file, or ""
  std::string endpoint;            ///< of a coordinator whose workers are the ranks to tune; "": ranks of this host
  std::string key_file;            ///< that job's key
};

/// Measures collectives of psring and its peers. Each contestant has its own rank processes, which sleep while another
/// contestant is measured. At each size, the contestants take turns in every round.
///
/// An iteration is the same for all contestants: every rank rewrites its input (as new gradients do), waits at the
/// benchmark's own barrier, reads the clock, makes the call, reads the clock, and reads the result. An iteration's time
/// is the slowest rank's time between both clock readings; `loop` also includes the rewriting and the reading. A
/// round's time is the median of its iterations. The report contains the median of the rounds and their spread
/// ((largest - smallest) / median). A ratio is a peer's time over psring's, as the median of the rounds' ratios. If a
/// contestant has several ways to make the call, its fastest way counts.
///
/// algbw is size over time; busbw is algbw times nccl-tests' factor: 2(n-1)/n for all_reduce, (n-1)/n for
/// reduce_scatter, all_gather and all_to_all, 1 for the others. For collectives in which each rank has a part of a
/// vector, size is that of the whole vector, and count that of the part.
///
/// The limit is the time from the first rank's start to the last rank's end in which all ranks at once, each in its own
/// vector, read and write the bytes that the call must at least touch in shared memory (CollectiveCall::traffic). For
/// an all_reduce of M bytes, each of n ranks reads n M/n and writes n M/n.
///
/// Checks results before the first round, and with `check` also after the last iteration of each round; counts every
/// wrong element. Throws check_failed after the report if there is any.
void bench_collectives(const CollectivesOptions& options);

/// Measures every algorithm of all_reduce over TCP at several message sizes, and adds the table of the fastest to
/// `options.tune`, a file of psring fit. The table's rows for other numbers of ranks are kept if they were measured
/// over the same network. With an endpoint, this process is one of the ranks, and each rank writes its own file.
void tune_all_reduce(const CollectivesOptions& options);

}  // namespace psring::bench
