#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <psring/common/base/parallel.h>
#include <psring/common/device/buffer.h>
#include <psring/worker/model/generate/gpt_weights.h>
#include <psring/worker/model/generate/kv_cache.h>

namespace psring::worker {

/// One token to compute: its place in its sequence, and whether its logits are wanted.
struct DecoderRow {
  std::uint32_t token = 0;
  std::uint32_t sequence = 0;
  std::uint32_t position = 0;
  bool logits = false;
};

/// The forward pass of a GPT over single tokens. Keys and values of earlier positions come from a cache, and those of
/// the rows are added to it. A row's result has the same bits whichever rows are computed with it, on how many threads
/// and with which vector instructions: every sum runs in a fixed order. So prefill, decoding with a cache, decoding in
/// a batch and recomputing everything give the same tokens.
class GptDecoder {
 public:
  /// The most rows that are computed at a time; a longer prompt is computed in parts of this size.
  static constexpr std::size_t kMostRows = 128;

  /// Books buffers as activations. REQUIRES: weights and ledger outlive the decoder.
  GptDecoder(const GptWeights& weights, std::size_t threads, MemoryLedger& ledger,
             const PanelKernels& kernels = panel_kernels());

  /// Computes the rows, any number of them, and returns the logits of the rows that want them, in order: [vocab] each.
  /// They are valid until the next call. REQUIRES: the rows of a sequence are consecutive positions, ascending, and
  /// together in `rows`; earlier positions are in the cache; tokens and positions lie within the shape.
  std::vector<std::span<const float>> run(std::span<const DecoderRow> rows, KvCache& cache);

  /// Returns the bytes that are booked for a cache whose longest sequence has `capacity` tokens, and `logits` wanted
  /// rows at a time.
  std::size_t scratch_bytes(std::size_t capacity, std::size_t logits) const;

 private:
  struct Segment;  ///< neighbouring rows of one sequence
  void reserve(std::size_t capacity, std::size_t logits);
  void run_part(std::span<const DecoderRow> rows, KvCache& cache, float* logits);
  void embed(std::span<const DecoderRow> rows);
  void attend(std::span<const Segment> segments, std::size_t layer, KvCache& cache);
  void attend_head(const Segment& segment, std::size_t layer, std::size_t head, KvCache& cache, float* scores);
  void multiply(const PackedMatrix& matrix, std::size_t rows, const float* x, std::size_t x_stride, float* y);
  void normalise(const GptWeights::Norm& norm, std::size_t rows);

  const GptWeights& weights_;
  const PanelKernels& kernels_;
  MemoryLedger& ledger_;
  Parallel threads_;
  std::size_t head_dim_;
  std::size_t wide_;  ///< row stride of hidden_: 4 dim, in whole panels

  Buffer x_;       ///< [rows, dim]: the residual stream
  Buffer normal_;  ///< [rows, dim]: a layer norm's output, then the heads' output
  Buffer statistics_;
  Buffer sums_;     ///< of inputs, for affine weights
  Buffer hidden_;   ///< [rows, wide]: queries, keys and values; GELU
  Buffer product_;  ///< [rows, dim in whole panels]
  Buffer scores_;   ///< a strip per head
  Buffer logits_;
};

}  // namespace psring::worker
