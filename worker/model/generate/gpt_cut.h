#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include <psring/common/base/range.h>
#include <psring/worker/model/gpt_layers.h>

namespace psring::worker {

/// The outputs that a rank has of a matrix with `whole` outputs: ranges of them, ascending.
struct OutputCut {
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  std::size_t whole = 0;
  std::vector<Range> ranges;

  std::size_t size() const;
  /// Returns the number that each of the rank's outputs has in the whole matrix.
  std::vector<std::size_t> places() const;
  /// Returns the rank's number of each output of the whole matrix; kNone if another rank has it.
  std::vector<std::size_t> own() const;
};

/// A rank's part of a GPT that generates. Every matrix is cut by its outputs, so that a rank computes whole outputs, in
/// the order of one process: the ranks exchange results and sum nothing, and the bits do not depend on their number.
/// Megatron-LM cuts every other matrix by its inputs instead, and sums, which saves half the exchanges and changes the
/// order of the sums.
struct GptCut {
  Range heads;
  OutputCut attention;    ///< c_attn: the queries, keys and values of the rank's heads
  OutputCut projection;   ///< attn.c_proj
  OutputCut expansion;    ///< mlp.c_fc
  OutputCut contraction;  ///< mlp.c_proj
  OutputCut tokens;       ///< wte
};

/// Throws usage, naming --tensor, if the heads are not divisible, or if the vocabulary has fewer tokens than there are
/// ranks.
GptCut cut_gpt(const GptShape& shape, const TensorPart& part);

}  // namespace psring::worker
