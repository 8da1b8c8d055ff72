#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <psring/common/base/range.h>
#include <psring/common/device/buffer.h>
#include <psring/worker/model/generate/packed_matrix.h>
#include <psring/worker/model/generate/weight_format.h>
#include <psring/worker/model/layers/gpt_layers.h>
#include <psring/worker/model/safetensors.h>

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

/// The key of a quantised file's metadata that holds the text of its WeightFormat.
inline constexpr const char* kWeightsKey = "psring.weights";

/// The tensors of a GPT, under GPT-2's names, or a rank's part of them. Matrices are packed for products; wte is the
/// embedding and the head. Layer norms and wpe are whole at every rank.
class GptWeights {
 public:
  struct Linear {
    PackedMatrix weight;
    std::span<const float> bias;
  };
  struct Norm {
    std::span<const float> weight;
    std::span<const float> bias;
  };
  struct Block {
    Norm ln_1;
    Linear attention;   ///< c_attn: queries, keys and values
    Linear projection;  ///< attn.c_proj
    Norm ln_2;
    Linear expansion;    ///< mlp.c_fc
    Linear contraction;  ///< mlp.c_proj
  };

  /// Reads a file of f32, f16 or bf16 tensors and rounds its matrices to `format`, or a file that save() wrote, which
  /// must have this format. A part's outputs are rounded like the outputs of the whole matrix. Throws data, naming the
  /// file, if a tensor is missing, unknown, not finite or of another shape; usage if int4 does not fit the shape, and
  /// as cut_gpt does.
  GptWeights(const TensorFile& file, const GptShape& shape, const WeightFormat& format, MemoryLedger& ledger,
             const TensorPart& part = {});

  const GptShape& shape() const { return shape_; }
  const TensorPart& part() const { return part_; }
  const GptCut& cut() const { return cut_; }
  const WeightFormat& format() const { return format_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  const Norm& ln_f() const { return ln_f_; }
  const PackedMatrix& wte() const { return wte_; }     ///< inputs: dim, outputs: the part's tokens
  std::span<const float> wpe() const { return wpe_; }  ///< [context, dim]

  /// Writes the weights in their format: `T` of type I8, or U8 with two values a byte (the lower half first), `T.scale`
  /// [outputs] or [groups, outputs], and `T.zero`; other tensors in f32. REQUIRES: the format is not f32, and the
  /// weights are whole.
  void save(const std::string& path) const;

 private:
  /// Calls each(name, matrix, cut, transposed) for every matrix; a transposed matrix is stored [outputs, inputs].
  template <class Self, class Each>
  static void for_each_matrix(Self& self, const Each& each);
  /// Calls each(name, span, shape of the whole tensor, the part's elements) for every vector and wpe.
  template <class Self, class Each>
  static void for_each_vector(Self& self, const Each& each);

  GptShape shape_;
  TensorPart part_;
  GptCut cut_;
  WeightFormat format_;
  Buffer vectors_;
  std::span<const float> wpe_;
  PackedMatrix wte_;
  std::vector<Block> blocks_;
  Norm ln_f_;
};

/// Returns the bytes that GptWeights books: matrices, whose outputs are rounded up to panels, and vectors.
std::size_t weight_bytes(const GptShape& shape, const WeightFormat& format, const TensorPart& part = {});
/// Returns the bytes of the weights that a decoded token reads: all but the embedding of other tokens and positions.
std::size_t decode_bytes(const GptShape& shape, const WeightFormat& format, const TensorPart& part = {});
/// Returns the number of parameters.
std::size_t parameter_count(const GptShape& shape);

/// Returns the format of a file that GptWeights::save wrote; f32 for other files. Throws data if the text is none.
WeightFormat stored_format(const TensorFile& file);

/// Finds a model's shape: from the file's metadata, else from `model` (a --model text, if not empty), else from
/// run.json or config.json (GPT-2's n_head) in the file's folder, else from the tensors' shapes, if these are one of
/// GPT-2's four sizes. Throws usage or data, with one line that names the missing argument, if the number of heads is
/// not known, the model is no GPT, `model` differs from the file's metadata, or the file lacks a GPT's tensors.
GptShape find_gpt_shape(const TensorFile& file, const std::string& model);
/// Returns the model that a file's metadata names, if it has another text than `model`.
std::optional<std::string> other_model_of_file(const TensorFile& file, const std::string& model);
/// Throws data if the metadata names a GPT of other sizes than `model`, a GPT, too. Tensors do not show the heads. A
/// model of another kind may have the same tensors, and begin from them.
void check_model_of_file(const TensorFile& file, const std::string& model);
/// Returns the --model text of a shape.
std::string gpt_text(const GptShape& shape);

}  // namespace psring::worker
