#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include <psring/worker/exchange/prediction.h>

namespace psring::worker {

/// Among how many processes a category is divided; 0: this process holds nothing of it.
struct Shares {
  std::size_t parameters = 1;
  std::size_t gradients = 1;
  std::size_t optimizer = 1;
};

/// The bytes that a process books for all of the layout's elements, padding counted: 4 per parameter, 4 per gradient, K
/// of optimizer state in f32; in 16 bits 2, 2 and K + 4, for the copy of the parameters in f32. Gradients and state
/// count trained units only.
std::map<Category, std::uint64_t> memory_formula(const Plan& plan, Shares shares);

/// A part of the layout's elements, padding counted.
struct OwnedElements {
  std::uint64_t all = 0;
  std::uint64_t trained = 0;
  std::uint64_t largest_piece = 0;  ///< of the trained elements, as servers cut them
  std::size_t server = 0;           ///< that owns them
};
/// The same for a part of the elements.
std::map<Category, std::uint64_t> memory_formula(const Plan& plan, OwnedElements owned, Shares shares);

/// The numbers that the formula takes.
struct ModelStates {
  std::uint64_t parameter_bytes = 0;
  std::uint64_t gradient_bytes = 0;
  std::uint64_t trained = 0;  ///< elements
  double state_bytes = 0;     ///< of the optimizer, for each trained element, with its f32 copy of the parameters
};
std::map<Category, std::uint64_t> memory_formula(const ModelStates& states, Shares shares);

/// Adds the optimizer state that a worker books, if `owners` workers divide it.
void add_optimizer_state(const Plan& plan, std::size_t owners, Prediction& sum);

}  // namespace psring::worker
