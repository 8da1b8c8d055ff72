#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <psring/cli/options/language.h>
#include <psring/common/base/dtype.h>
#include <psring/common/base/memory_ledger.h>

namespace psring::cli {

// The arithmetic of `psring memory --parameters`: training and inference of a transformer of which only its size is
// known. Jobs with a --model are predicted by their own strategies instead (worker/predict_job.h).

/// The size of a transformer. Without layers and dim its activations and KV cache are unknown, and left out.
struct TransformerSize {
  double parameters = 0;
  std::size_t layers = 0;
  std::size_t dim = 0;
  std::size_t heads = 0;     ///< 0: dim / 128, at least 1
  std::size_t kv_heads = 0;  ///< heads of keys and values; 0: as many as heads
  std::size_t context = 2048;

  bool has_shape() const { return layers > 0 && dim > 0; }
  std::size_t number_of_heads() const;
};

/// One line of the calculation.
struct MemoryTerm {
  std::string name;     ///< "gradients", in English
  std::string formula;  ///< with the numbers put in: "2 B x 7e+09 / 8"
  double bytes = 0;
};

struct TrainingMemory {
  TransformerSize size;
  DType type = DType::bf16;  ///< of parameters, gradients and activations
  bool master_copy = true;   ///< of parameters narrower than f32
  std::size_t slots = 2;     ///< values of optimizer state for each parameter: 2 for Adam
  std::size_t state_bits = 32;
  std::size_t state_block = 2048;  ///< with 8 bits: values that share a scale in f32
  std::size_t workers = 1;
  std::size_t batch = 1;  ///< samples of a worker at a time
  bool checkpointing = false;
};

/// Memory of one worker in ZeRO stage 0 to 3. The shares are those of worker::memory_formula.
std::vector<MemoryTerm> training_memory(const TrainingMemory& of, std::size_t stage, Language language = Language::en);

struct InferenceMemory {
  TransformerSize size;
  std::size_t weight_bits = 16;
  std::size_t cache_bytes = 2;  ///< of a value in the KV cache
  std::size_t batch = 1;        ///< sequences
  double overhead = 0.2;        ///< of the weights: activations, workspace, fragmentation
};

std::vector<MemoryTerm> inference_memory(const InferenceMemory& of, Language language = Language::en);

double total_bytes(const std::vector<MemoryTerm>& terms);

/// Parses "7B", "125M", "1.3b" or a number of parameters. Throws usage, naming `flag`.
double parse_parameters(const std::string& flag, const std::string& text);

}  // namespace psring::cli
