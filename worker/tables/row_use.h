#pragma once

#include <cstdint>

namespace psring::worker {

/// The use of a batch's rows.
enum class RowUse : std::uint8_t {
  train,  ///< their gradients follow
  ahead,  ///< as well, after those of the step before
  read,   ///< an evaluation, or the saving of a model: counted as control traffic
};

}  // namespace psring::worker
