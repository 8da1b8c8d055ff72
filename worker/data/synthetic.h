#pragma once

#include <cstddef>
#include <cstdint>

#include <psring/worker/data/dataset.h>

namespace psring::worker {

/// Describes generated data; `cols`, `classes` and the kind follow from the model.
struct SyntheticSpec {
  enum class Kind : std::uint8_t {
    classes,  ///< inputs uniform in [-1, 1); the class is the largest output of a fixed random linear teacher
    tokens,   ///< a Markov chain of tokens, see make_synthetic
    values,   ///< inputs uniform in [-1, 1); the targets are sin(2 w x / sqrt(cols)), w normal
    inputs,   ///< standard normal inputs, no targets
  };
  Kind kind = Kind::classes;
  std::size_t samples = 0;  ///< of the training split; the test split has a tenth of this number, but at least one
  std::size_t cols = 0;     ///< inputs per sample, or the context
  std::size_t classes = 0;  ///< classes, the vocabulary, or real targets
  std::uint64_t seed = 0;
};

/// Generates both splits from one source and holds them in memory, so that reading a sample is a copy. Every number
/// depends only on (seed, sample, column), by CounterRng with Purpose::synthetic.
///
/// Tokens: each sample starts with a random token. A token is followed by its successor in a random permutation of the
/// vocabulary V with probability 3/4, otherwise by any token. The lowest possible loss is therefore -(3/4 + 1/4V)
/// ln(3/4 + 1/4V) - (V - 1)/4V ln(1/4V).
///
/// Throws usage if the data would take more than 1 GiB or have more than 2^24 classes.
DataSplit make_synthetic(const SyntheticSpec& spec);

}  // namespace psring::worker
