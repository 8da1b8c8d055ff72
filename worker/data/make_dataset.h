#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <psring/common/base/registry.h>
#include <psring/common/base/spec.h>
#include <psring/worker/data/dataset.h>

namespace psring::worker {

/// What the model says it needs of its data.
struct DataNeeds {
  std::size_t input_cols = 0;       ///< of one sample: pixels, or tokens of a context
  std::size_t rows_per_sample = 1;  ///< targets of one sample: 1, or the context
  std::size_t classes = 0;          ///< the most that its outputs can tell apart, or its vocabulary
  bool tokens = false;              ///< inputs are token ids
  bool targets = true;              ///< false: its loss reads none
  std::uint64_t seed = 0;           ///< the run's, for data that is made
  std::string model = {};           ///< as `--model` says it, for errors
};

/// What `--data` can name: the built-in data sets and a user's own.
using DatasetRegistry = Registry<DataSplit, const DataNeeds&>;

/// fashion-mnist, idx, text, tokens, synthetic.
void register_builtin_datasets(DatasetRegistry& registry);

/// Makes what `spec` names and holds it against the model. Throws usage where the name is unknown; data,
/// naming both flags, where the shape of the data does not fit, or there is no sample.
DataSplit make_dataset(const DatasetRegistry& registry, const Spec& spec, const DataNeeds& needs);

/// `fashion-mnist`, or `fashion-mnist:DIR` where the files lie elsewhere than the distribution puts them.
DataSplit make_fashion_mnist(const Spec& spec, const DataNeeds& needs);
/// `idx:DIR`
DataSplit make_idx(const Spec& spec, const DataNeeds& needs);
/// `text:FILE`: a byte a token.
DataSplit make_text(const Spec& spec, const DataNeeds& needs);
/// `tokens:FILE`: 16-bit numbers, little-endian.
DataSplit make_tokens(const Spec& spec, const DataNeeds& needs);
/// `synthetic`, `synthetic:samples=N,seed=S` (4096, the run's seed).
DataSplit make_synthetic_data(const Spec& spec, const DataNeeds& needs);

}  // namespace psring::worker
