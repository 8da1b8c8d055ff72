#pragma once

#include <cstddef>
#include <memory>

#include <psring/worker/data/dataset.h>

namespace psring::worker {

/// Splits a data set by the numbers of its samples alone: of ten consecutive groups of `group` samples the last one is
/// in the test set. Throws data, naming `source`, if there are fewer than ten groups.
DataSplit every_tenth(std::shared_ptr<const Dataset> all, std::size_t group, const std::string& source);

}  // namespace psring::worker
