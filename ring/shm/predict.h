#pragma once

#include <cstddef>

#include <psring/ring/collective.h>
#include <psring/ring/element.h>

namespace psring::ring {

/// The bytes that an operation in shared memory moves at rank `rank` of `ranks`; see ProcessGroup::predict.
Cost predict_shm(std::size_t rank, std::size_t ranks, Collective collective, std::size_t count, ElementType type,
                 const Parts& parts, std::size_t root);

}  // namespace psring::ring
