#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <psring/common/base/parallel.h>
#include <psring/common/device/buffer.h>
#include <psring/worker/model/generate/gpt_weights.h>
#include <psring/worker/model/generate/kv_cache.h>
#include <psring/worker/model/parallel/tensor_part.h>

namespace psring::worker {

/// Rows of floats.
struct FloatRows {
  const float* data = nullptr;
  std::size_t stride = 0;
};

/// Exchanges results between the ranks of a divided GPT: a rank computes some columns of a result, and gets the columns
/// of the others. Values pass through the part's memory. All ranks make the same calls in the same order. REQUIRES: the
/// part is connected, with the memory that `memory_bytes` returns.
class PartExchange {
 public:
  explicit PartExchange(const TensorPart& part) : part_(part) {}

  /// Returns the bytes of a part's memory, if at most `rows` rows have up to `columns` columns, and single rows up to
  /// `widest`.
  static std::size_t memory_bytes(std::size_t rows, std::size_t columns, std::size_t widest);

  bool whole() const { return part_.whole(); }
  /// Collects the columns of `rows` rows in `to` [rows, units * unit]: rank r has the columns of units part.of(units).
  void gather(std::size_t rows, FloatRows own, std::size_t units, std::size_t unit, float* to);
  /// Collects whole rows: rank owners[i] has row i in `x` [owners.size(), columns], and all get it.
  void share_rows(std::span<const std::uint32_t> owners, std::size_t columns, float* x);
  /// Payload bytes that this rank has received from others so far.
  std::uint64_t received_bytes() const { return received_; }

 private:
  void gather_some(std::size_t rows, FloatRows own, std::size_t units, std::size_t unit, float* to);
  std::span<float> memory(std::size_t floats) const;

  TensorPart part_;
  std::uint64_t received_ = 0;
};

/// One token to compute: its place in its sequence, and whether its logits are wanted.
struct DecoderRow {
  std::uint32_t token = 0;
  std::uint32_t sequence = 0;
  std::uint32_t position = 0;
  bool logits = false;
};

/// The forward pass of a GPT over single tokens. Keys and values of earlier positions come from a cache, and the keys
/// and values of the rows are added to it. A row's result has the same bits for any other rows beside it, any number of
/// threads and any vector instructions, because every sum runs in a fixed order. So prefill, decoding with a cache,
/// decoding in a batch and recomputing everything give the same tokens.
///
/// A part of a divided GPT computes its outputs of every matrix, from whole inputs that it gets from the other ranks,
/// and so has the same bits, too. All ranks compute the same rows, and each gets all logits.
class GptDecoder {
 public:
  /// The most rows that are computed at a time; a longer prompt is computed in parts of this size.
  static constexpr std::size_t kMostRows = 128;

  /// Books buffers as activations. REQUIRES: weights and ledger outlive the decoder; the weights' part is connected
  /// with exchange_bytes() of memory before the first pass.
  GptDecoder(const GptWeights& weights, std::size_t threads, MemoryLedger& ledger,
             const PanelKernels& kernels = panel_kernels());

  /// Computes the rows, any number of them, and returns the logits of the rows that want them, in order: [vocab] each.
  /// They are valid until the next call. REQUIRES: the rows of a sequence are consecutive positions, ascending, and
  /// together in `rows`; earlier positions are in the cache; tokens and positions lie within the shape.
  std::vector<std::span<const float>> run(std::span<const DecoderRow> rows, KvCache& cache);

  /// Returns the bytes that are booked for a cache whose longest sequence has `capacity` tokens, and `logits` wanted
  /// rows at a time.
  std::size_t scratch_bytes(std::size_t capacity, std::size_t logits) const;
  /// Returns the bytes of memory through which the parts of a divided GPT exchange rows.
  static std::size_t exchange_bytes(const GptShape& shape);
  /// Payload bytes that this part has received from the others so far.
  std::uint64_t received_bytes() const { return exchange_.received_bytes(); }

 private:
  struct Segment;  ///< neighbouring rows of one sequence
  void reserve(std::size_t capacity, std::size_t logits);
  void run_part(std::span<const DecoderRow> rows, KvCache& cache, float* logits);
  void embed(std::span<const DecoderRow> rows);
  void attend(std::span<const Segment> segments, std::size_t layer, KvCache& cache);
  void attend_head(const Segment& segment, std::size_t layer, std::size_t head, KvCache& cache, float* scores);
  void multiply(const PackedMatrix& matrix, FloatRows x, std::size_t rows, float* y);
  void multiply(const GptWeights::Linear& linear, FloatRows x, std::size_t rows, float* y);
  /// x += h w + bias, where this part has `h`'s columns of units part.of(units).
  void add_half(const GptWeights::Linear& linear, FloatRows h, std::size_t units, std::size_t rows);
  void compute_logits(std::span<const DecoderRow> rows, float* logits);
  /// Returns all columns of rows of which each part has some.
  FloatRows gather(std::size_t rows, FloatRows own, std::size_t units, std::size_t unit);
  void normalise(const GptWeights::Norm& norm, std::size_t rows);
  std::size_t logits_stride() const;

  const GptWeights& weights_;
  const PanelKernels& kernels_;
  MemoryLedger& ledger_;
  Parallel threads_;
  PartExchange exchange_;
  std::size_t head_dim_;
  std::size_t heads_;      ///< of this part
  std::size_t own_dim_;    ///< of its heads
  std::size_t qkv_width_;  ///< row stride of its queries, keys and values, in whole panels
  std::size_t wide_;       ///< row stride of hidden_, in whole panels

  Buffer x_;       ///< [rows, dim]: the residual stream
  Buffer normal_;  ///< [rows, dim]: a layer norm's output, then the heads' output
  Buffer statistics_;
  Buffer sums_;     ///< of inputs, for affine weights
  Buffer hidden_;   ///< [rows, wide]: queries, keys and values; GELU
  Buffer product_;  ///< [rows, dim in whole panels]
  Buffer scores_;   ///< a strip per head
  Buffer logits_;
  Buffer gathered_;    ///< of a part: [rows, 4 dim]
  Buffer own_logits_;  ///< of a part: [rows, its tokens in whole panels]
};

/// Returns the payload bytes that a part receives from the others for `rows` rows: the other parts' columns of four
/// results a layer, the logits of the `logits` rows that want them, and the embedding of `others` rows, whose tokens
/// other parts have.
std::uint64_t received_bytes(const GptShape& shape, const TensorPart& part, std::uint64_t rows, std::uint64_t logits,
                             std::uint64_t others);

}  // namespace psring::worker
