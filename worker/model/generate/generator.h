#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/worker/model/generate/token_sampler.h>
#include <psring/worker/model/generate/weight_format.h>
#include <psring/worker/model/layers/gpt_layers.h>

namespace psring::ring {
class ProcessGroup;
}

namespace psring::worker {

class TensorPart;

using Tokens = std::vector<std::uint32_t>;

/// How to continue the prompts.
struct GenerateOptions {
  std::size_t tokens = 64;  ///< new tokens of each sequence
  Sampling sampling = {};
  bool cache = true;                ///< false: recompute all positions for every token
  std::uint32_t stop = UINT32_MAX;  ///< a sequence ends with this token; it is not part of the result
};

/// New tokens, times and memory.
struct Generated {
  std::vector<Tokens> sequences;     ///< the new tokens of each prompt
  double prefill_s = 0;              ///< until the first token of every sequence is chosen
  double decode_s = 0;               ///< all other steps together
  std::size_t steps = 0;             ///< after prefill; a step makes one token for each sequence that goes on
  std::size_t new_tokens = 0;        ///< of all sequences
  std::size_t cache_bytes = 0;       ///< booked for keys and values, at this rank
  std::uint64_t rows = 0;            ///< positions that were computed
  std::uint64_t logits = 0;          ///< positions whose logits were computed
  std::uint64_t others = 0;          ///< positions whose token's embedding another rank has
  std::uint64_t received_bytes = 0;  ///< from other ranks
  double exchange_s = 0;             ///< spent in exchanges with other ranks
};

/// Throws usage, naming the prompt, if a prompt is empty, has a token outside the vocabulary, or does not fit into the
/// context with `tokens` new ones: prompt + tokens - 1 positions are computed.
void check_prompts(const GptShape& shape, std::span<const Tokens> prompts, std::size_t tokens);

/// The summed loss of a text, and the bytes that its ranks exchanged.
struct TextLoss {
  double loss_sum = 0;
  std::uint64_t tokens = 0;          ///< number of rows and of logits that were computed
  std::uint64_t others = 0;          ///< tokens whose embedding another rank has
  std::uint64_t received_bytes = 0;  ///< from other ranks
  double mean() const { return tokens == 0 ? 0 : loss_sum / static_cast<double>(tokens); }
  double perplexity() const;
  TextLoss& operator+=(const TextLoss& more);
};

/// A GPT that generates text: weights from a safetensors file, in f32, int8 or int4.
///
///   Generator generator({.file = "runs/a/model.safetensors"});
///   generator.generate({{72, 105}}, {.tokens = 20}, [](std::size_t, std::uint32_t token) { std::putchar(token); });
///
/// An object serves one thread.
class Generator {
 public:
  struct Options {
    std::string file = {};     ///< of f32, f16 or bf16 weights, or a file that `save` wrote
    std::string model = {};    ///< as --model takes it; "": see find_gpt_shape
    std::string weights = {};  ///< f32, int8, int4:group=64,...; "": as the file has them, f32 if it is not quantised
    std::size_t threads = 1;   ///< the results do not depend on it
    /// Ranks that divide the model: each makes a Generator with the same options, and all call the same functions with
    /// the same arguments. The results are the same bits for any number of ranks, and the same at all. Null: this
    /// process has the whole model. REQUIRES: the group outlives the object, and its arena, if it has one, has room for
    /// exchange_bytes.
    ring::ProcessGroup* group = nullptr;
  };
  /// Throws usage or data, naming the file, if it cannot be read as a GPT's weights.
  explicit Generator(const Options& options);
  ~Generator();
  Generator(Generator&&) noexcept;

  /// Returns the bytes of the memory through which the ranks of a group exchange. Reads the file's header, and throws
  /// like the constructor.
  static std::size_t exchange_bytes(const Options& options);

  const GptShape& shape() const;
  const TensorPart& part() const;  ///< this rank's part of the model
  const WeightFormat& weights() const;
  const char* kernels() const;  ///< the instruction set of the products

  /// Called for each new token as soon as it is chosen: the prompt's number and the token.
  using OnToken = std::function<void(std::size_t sequence, std::uint32_t token)>;

  /// Continues each prompt by up to `options.tokens` tokens. Greedy tokens are the same with and without a cache, and
  /// for a prompt alone or in a batch. Throws as check_prompts does.
  Generated generate(std::span<const Tokens> prompts, const GenerateOptions& options, const OnToken& on_token = {});

  /// Returns the logits of every position of a text, [tokens, vocab]. Throws like generate.
  std::vector<float> logits(const Tokens& tokens);
  /// Returns the loss of predicting `targets` after each of `tokens`. Throws like generate.
  TextLoss loss(const Tokens& tokens, const Tokens& targets);

  /// Writes the quantised weights. Throws usage if they are f32.
  void save(const std::string& file) const;

  /// Returns the bytes that this rank booked for weights, and for the buffers of a pass at their peak; the cache is not
  /// among them, nor is the memory of the exchange.
  std::size_t weight_bytes() const;
  std::size_t scratch_bytes() const;
  /// Reads as much memory as the weights have, as fast as this processor's vectors can, and returns bytes per second:
  /// of one rank, while all read.
  double measure_bandwidth();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace psring::worker
