#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include <psring/worker/data/dataset.h>

namespace psring::worker {

/// Returns `count` samples of a data set. `place`: the number, in the whole data set, of each of them.
std::unique_ptr<Dataset> picked_samples(std::shared_ptr<const Dataset> all, std::size_t count,
                                        std::function<std::size_t(std::size_t)> place);
/// Returns the first `count` samples of a data set, in its order. REQUIRES: count <= data->size().
std::unique_ptr<Dataset> first_samples(std::unique_ptr<Dataset> data, std::size_t count);

}  // namespace psring::worker
