#pragma once

#include <cstddef>
#include <memory>

#include <psring/worker/model/model.h>
#include <psring/worker/model/parallel/tensor_part.h>

namespace psring::worker {

constexpr std::size_t parallel_cross_entropy_bytes(std::size_t rows) {
  return rows * (3 * sizeof(double) + sizeof(float));
}

/// Cross-entropy over `classes` classes of which this part has the columns part.of(classes): y is [rows, part], and no
/// rank ever has all logits. Three numbers a row pass between the ranks: the largest logit, and then in one sum the sum
/// of exponentials, the target's logit, and how many classes before the target have the largest logit; loss, gradient
/// and `correct` are as make_cross_entropy says, and the same at all ranks. The numbers of a sum are f64.
/// All lie in the part's memory, parallel_cross_entropy_bytes(rows). REQUIRES: !part.whole().
std::unique_ptr<Loss> make_parallel_cross_entropy(std::size_t classes, const TensorPart& part);

}  // namespace psring::worker
