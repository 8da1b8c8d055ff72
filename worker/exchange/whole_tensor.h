#pragma once

#include <cstddef>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/layout.h>
#include <psring/worker/exchange/mesh/mesh_groups.h>

namespace psring::worker {

/// A tensor of the whole model, which this worker has gathered from the workers of one copy of the model.
class WholeTensor {
 public:
  /// A collective of the group MeshGroups::model, by broadcasts, which count as control. `whole`: the tensor in the
  /// whole model; `stage`: the stage that holds it, of several the first. `own`: this worker's part of it, and the
  /// part's values; null if this worker's stage is another one.
  WholeTensor(const MeshGroups& groups, const TensorSpec& whole, std::size_t stage, const TensorLayout* own,
              ConstElements values, DType type);

  ConstElements values() const { return Elements(const_cast<std::byte*>(bytes_.data()), elements_, type_); }

 private:
  std::size_t elements_;
  DType type_;
  std::vector<std::byte> bytes_;
};

}  // namespace psring::worker
