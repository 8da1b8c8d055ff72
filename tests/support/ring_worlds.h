#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <psring/ring/group_options.h>
#include <psring/ring/process_group.h>

namespace psring::test {

/// The implementations of ProcessGroup that every test of collectives runs over.
std::vector<std::string> ring_worlds();

/// Runs `body` at each rank of a world, each in a thread of its own; throws the first error of any.
void run_ranks(const std::string& world, std::size_t ranks, const std::function<void(ring::ProcessGroup&)>& body,
               const ring::GroupOptions& options = {});

}  // namespace psring::test
