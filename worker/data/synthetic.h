#pragma once

#include <cstddef>
#include <cstdint>

#include <psring/worker/data/dataset.h>

namespace psring::worker {

/// Data that is made, not read; `cols`, `classes` and the kind are what the model needs.
struct SyntheticSpec {
  enum class Kind : std::uint8_t {
    classes,  ///< inputs uniform in [-1, 1); the class is the largest output of a fixed random linear teacher
    tokens,   ///< a Markov chain of tokens, see below
    inputs,   ///< standard normal inputs, no targets
  };
  Kind kind = Kind::classes;
  std::size_t samples = 0;  ///< of the training split; the test split has a tenth of it more, at least one
  std::size_t cols = 0;     ///< inputs of a sample, or the context
  std::size_t classes = 0;  ///< or the vocabulary
  std::uint64_t seed = 0;
};

/// Both splits are drawn from one source and held in memory, so that reading costs a copy. Every number
/// depends on (seed, sample, column) alone, by CounterRng with Purpose::synthetic.
///
/// Tokens: each sample starts anywhere; a token is followed by its successor in one random permutation of
/// the vocabulary V with probability 3/4, else by any token. The least loss that can be reached is therefore
/// -(3/4 + 1/4V) ln(3/4 + 1/4V) - (V - 1)/4V ln(1/4V).
///
/// Throws usage where it would take more than 1 GiB, or more than 2^24 classes.
DataSplit make_synthetic(const SyntheticSpec& spec);

}  // namespace psring::worker
