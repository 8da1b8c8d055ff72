#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// Among how many processes each category is cut; 0: this process has none of it.
struct Shares {
  std::size_t parameters = 1;
  std::size_t gradients = 1;
  std::size_t optimizer = 1;
};

/// What a process books for all of the layout's elements, padding counted: 4 bytes a parameter, 4 a gradient, K of
/// optimizer state in f32; in 16 bit 2, 2, and 4 more of state, the parameters' copy in f32. Gradients and state are
/// those of trained units.
std::map<Category, std::uint64_t> memory_formula(const Context& context, Shares shares);

/// The same of a worker: layers' buffers, of which each has all, count as parameters; and `communication`. `staged`:
/// what of parameters and gradients the host has, too, where a device computes and servers are; a compressor's bytes
/// are added.
std::map<Category, std::uint64_t> worker_memory(const Context& context, Shares shares, std::uint64_t communication = 0,
                                                std::uint64_t staged = 0);

}  // namespace psring::worker
