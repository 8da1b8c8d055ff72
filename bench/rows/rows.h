#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace psring::bench {

/// The options of `psring-bench rows`.
struct RowsOptions {
  std::size_t rows = 0;
  std::vector<std::size_t> widths;
  std::size_t lookups = 16384;
  double zipf = 1.05;
  bool shm = true;
  bool tcp = true;
  std::vector<std::string> peers;
  std::size_t iterations = 50;  ///< batches per round
  std::size_t warm_up = 4;
  std::size_t rounds = 7;
  bool check = false;  ///< check the rows after timing, too
  std::string json;    ///< file, or ""
};

/// Measures one server and one worker, two processes, that exchange rows: the worker pulls the rows of a batch's keys,
/// and pushes their gradients, each waited for. The server has `rows` rows and applies rowwise-adagrad. Beside psring's
/// ways, in turn: the floors (RowFloors) and the peers. Checks the rows against a plain loop before timing (and after,
/// with `check`); throws check_failed if a bit differs. Prints a table for each width, and how the table was filled:
/// the slowest pulls and pushes while it grew, and the server's memory beside the predicted memory.
void bench_rows(const RowsOptions& options);

}  // namespace psring::bench
