#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <psring/ring/plan.h>

namespace psring::ring {

/// Which algorithm serves an all-reduce between processes, by ranks and bytes: a table that `psring-bench all_reduce
/// --tune` measures and writes. All ranks of a job use rank 0's.
struct Tuning {
  struct Row {
    std::size_t ranks = 2;        ///< of the group; a group between two rows takes the smaller
    std::size_t up_to_bytes = 0;  ///< of the vector; the last row of a number of ranks holds for all beyond
    Algorithm algorithm = Algorithm::ring;
    std::size_t segment_bytes = 262144;
  };
  std::vector<Row> rows;

  /// What was measured on a machine of two cores over loopback.
  static Tuning built_in();
  /// Throws data, naming the file.
  static Tuning load(const std::string& file);
  static Tuning from_json(const std::string& text);
  std::string to_json() const;

  /// The row for such a call.
  Row pick(std::size_t ranks, std::size_t bytes) const;
};

}  // namespace psring::ring
