#pragma once

#include <cstddef>

namespace psring {

/// The frames of a table's rows between a worker and a server in a step: the mean over the steps of the run, and over
/// all pairs of a worker and a server, also of those that share a process.
struct RowTraffic {
  std::size_t pieces = 1;     ///< of a server's buckets, which are updated separately
  double frames = 0;          ///< that ask for rows; as many bring gradients, and are acknowledged
  double key_bytes = 0;       ///< payload of the frames that ask
  double row_bytes = 0;       ///< of the answers
  double early_bytes = 0;     ///< of these, the part that may come before the update of the step before
  double gradient_bytes = 0;  ///< of the pushes
  bool in_parts = false;      ///< each frame has two answers: the early rows, and the others
};

}  // namespace psring
