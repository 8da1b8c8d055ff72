#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <psring/ring/plan/algorithm.h>

namespace psring::ring {

/// Picks the algorithm of an all-reduce between processes by ranks and bytes. `psring-bench all_reduce --tune` measures
/// and writes the table. All ranks of a job use the table of rank 0.
struct Tuning {
  struct Row {
    std::size_t ranks = 2;        ///< of the group; a group between two rows takes the row with fewer ranks
    std::size_t up_to_bytes = 0;  ///< of the vector; the largest row for a number of ranks serves all larger vectors
    Algorithm algorithm = Algorithm::ring;
    std::size_t segment_bytes = 262144;
  };
  std::vector<Row> rows;

  /// Measured on a machine with two cores, over loopback.
  static Tuning built_in();
  /// Throws data, naming the file.
  static Tuning load(const std::string& file);
  static Tuning from_json(const std::string& text);
  std::string to_json() const;

  /// The row for such a call.
  Row pick(std::size_t ranks, std::size_t bytes) const;
};

}  // namespace psring::ring
