#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

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
  std::string model = "";           ///< as `--model` says it, for errors
};

/// Makes what `--data` names, as a user's program may register it too.
using DatasetFactory = std::function<DataSplit(const Spec&, const DataNeeds&)>;

/// Runs the factory and holds its result against the model. Throws data, naming both flags, where the
/// shape of the data does not fit, or there is no sample.
DataSplit make_dataset(const DatasetFactory& factory, const Spec& spec, const DataNeeds& needs);

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

/// Calls add(name, help, factory) for each data set that psring brings.
template <class Add>
void register_builtin_datasets(Add&& add) {
  add("fashion-mnist", "Zalando's 70000 images of clothing, from the package dataset-fashion-mnist",
      make_fashion_mnist);
  add("idx", "idx:DIR: images and labels in IDX files, plain or gzip", make_idx);
  add("text", "text:FILE: the bytes of a file as tokens", make_text);
  add("tokens", "tokens:FILE: 16-bit little-endian tokens", make_tokens);
  add("synthetic", "synthetic:samples=N,seed=S: made for the model, and learnable", make_synthetic_data);
}

}  // namespace psring::worker
