#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <psring/common/base/text/registry.h>
#include <psring/common/base/text/spec.h>
#include <psring/worker/data/dataset.h>

namespace psring::worker {

/// The model's requirements on its data.
struct DataNeeds {
  std::size_t input_cols = 0;       ///< inputs of one sample: pixels, or tokens of a context
  std::size_t rows_per_sample = 1;  ///< targets of one sample: 1, or the context
  std::size_t classes = 0;          ///< maximum number of classes, or the vocabulary
  bool tokens = false;              ///< inputs are token ids
  bool targets = true;              ///< false: the loss reads no classes
  std::size_t target_values = 0;    ///< real numbers that are the targets of one sample
  std::size_t key_fields = 0;       ///< features that are keys
  std::size_t key_bits = 64;        ///< of a key at most: fewer if features share a table
  std::uint64_t seed = 0;           ///< seed of the run, for synthetic data
  std::string model = {};           ///< as given with `--model`, for errors
};

/// The names that `--data` accepts: built-in data sets and user-defined ones.
using DatasetRegistry = Registry<DataSplit, const DataNeeds&>;

/// Registers the data sets that are named below and in keyed/keyed_data.h.
void register_builtin_datasets(DatasetRegistry& registry);

/// Makes the data that `spec` names, and checks it against the model. Throws usage if the name is unknown. Throws data,
/// naming both flags, if the shape of the data does not fit or there is no sample.
DataSplit make_dataset(const DatasetRegistry& registry, const Spec& spec, const DataNeeds& needs);

/// Throws a line such as "--data idx:d does not fit --model mlp:100-10: 784 inputs a sample, 100 expected".
[[noreturn]] void fail_misfit(const Spec& spec, const DataNeeds& needs, const std::string& why);
/// The free text of a spec that has one. Throws usage, naming the flag and what is expected.
const std::string& path_of(const Spec& spec, const char* expected);

/// `fashion-mnist` from the distribution's package, or `fashion-mnist:DIR`.
DataSplit make_fashion_mnist(const Spec& spec, const DataNeeds& needs);
/// `idx:DIR`
DataSplit make_idx(const Spec& spec, const DataNeeds& needs);
/// `csv:FILE` or `csv:train=FILE,test=FILE`, with `,missing=mean` or `,missing=zero`; see csv.h.
DataSplit make_csv(const Spec& spec, const DataNeeds& needs);
/// `text:FILE`: one token per byte.
DataSplit make_text(const Spec& spec, const DataNeeds& needs);
/// `tokens:FILE`: 16-bit numbers, little-endian.
DataSplit make_tokens(const Spec& spec, const DataNeeds& needs);
/// `synthetic`, `synthetic:samples=N,seed=S` (by default 4096 samples and the run's seed).
DataSplit make_synthetic_data(const Spec& spec, const DataNeeds& needs);
/// `criteo-like:samples=N,seed=S` (by default 4096 samples and the run's seed); see criteo_like.h.
DataSplit make_criteo_like_data(const Spec& spec, const DataNeeds& needs);

/// Data of the shape that the model needs, without samples that can be read: for predictions.
DataSplit make_planned_data(const DataNeeds& needs, std::size_t samples);

}  // namespace psring::worker
