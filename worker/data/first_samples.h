#pragma once

#include <cstddef>
#include <memory>

#include <psring/worker/data/dataset.h>

namespace psring::worker {

/// Returns the first `count` samples of a data set, in its order. REQUIRES: count <= data->size().
std::unique_ptr<Dataset> first_samples(std::unique_ptr<Dataset> data, std::size_t count);

}  // namespace psring::worker
