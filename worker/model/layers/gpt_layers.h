#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <psring/worker/model/layer.h>
#include <psring/worker/model/parallel/tensor_part.h>

namespace psring::worker {

/// Token ids travel as floats, which are exact below this number.
inline constexpr std::size_t kMostTokens = 1 << 24;

/// A GPT's sizes. REQUIRES: dim is divisible by heads; vocab is at most kMostTokens.
struct GptShape {
  std::size_t layers = 6;
  std::size_t dim = 384;
  std::size_t heads = 6;
  std::size_t context = 256;
  std::size_t vocab = 256;

  friend bool operator==(const GptShape&, const GptShape&) = default;
};

// The layers of GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019), with its tensors'
// names, shapes and initial values. Weights of linear layers are [in, out] and start normal with a standard deviation
// of 0.02 (wpe, too, as in the published PyTorch code; the TensorFlow code has 0.01), or 0.02 / sqrt(2 layers) for
// projections into the residual stream. Biases start at 0, layer norms' weights at 1. The tokens are R = batch *
// context rows.
//
// Under tensor parallelism, `part` says which part of a layer's weights a process has. Activations [R, dim], layer
// norms, wpe and the biases of c_proj are whole and the same at all ranks of the group. A part has whole heads, and t
// below is the number of parts.

/// The part's rows of wte, which embedding and head share.
TensorSpec token_rows(const GptShape& shape, const TensorPart& part);

/// Maps token ids as floats [batch, context] to wte[id] + wpe[position], [R, dim]. Throws data, naming sample and
/// position, if an id is not a whole number below the vocabulary. A part has rows of wte; forward sums y, to which the
/// part that has a token adds the token's row.
std::unique_ptr<Layer> make_embedding(const GptShape& shape, const TensorPart& part = {});

/// Names of the inputs of both halves of a block, which have the same shape. In a GPT, both are the residual stream.
std::vector<std::string> half_inputs();
/// Returns the shape of a half's output. Throws usage if its inputs have different shapes.
Shape half_output(std::span<const Shape> inputs);
/// Computes the end of a half's forward: y = residual + bias + hidden w, summed over the parts. Only the first part
/// adds residual and bias, so that a single part computes a whole half.
void project_half(const Forward& pass, const TensorPart& part, ConstMatrix hidden, std::size_t weight,
                  std::size_t bias);
/// A half's sums: y in forward, the gradient of its norm's output in backward.
LayerSums half_sums(const TensorPart& part, Shape in);
/// Computes the end of a half's backward, from the gradient of its norm's output, `d_normal`, to the gradients of the
/// norm and of both inputs. Overwrites d_normal. scratch: layer_norm_scratch(dim).
void half_backward(const Backward& pass, Matrix d_normal, std::span<const float> statistics, std::size_t norm_weight,
                   std::size_t norm_bias, std::span<float> scratch);

/// y = residual + c_proj(attention(c_attn(ln_1(x)))) of block `index`. Saves for backward: ln_1's statistics (2R),
/// queries, keys and values (3R dim / t), the heads' output (R dim / t), and a log-sum per row and head (R heads / t).
/// A part has heads / t heads: columns of c_attn, rows of c_proj. Forward sums y, backward the gradient of ln_1's
/// output.
std::unique_ptr<Layer> make_attention_half(const GptShape& shape, std::size_t index, const TensorPart& part = {});

/// y = residual + c_proj(gelu(c_fc(ln_2(x)))) of block `index`. Saves ln_2's statistics (2R) and GELU's input (4R dim /
/// t). The pass that needs GELU's derivative recomputes its output. A part has columns of c_fc and rows of c_proj.
/// Forward sums y, backward the gradient of ln_2's output.
std::unique_ptr<Layer> make_mlp_half(const GptShape& shape, std::size_t index, const TensorPart& part = {});

/// logits [R, vocab] = ln_f(x) wte^T. Saves ln_f's statistics (2R). A part computes the logits of its tokens, [R, its
/// rows of wte]; backward sums the gradient of ln_f's output.
std::unique_ptr<Layer> make_head(const GptShape& shape, const TensorPart& part = {});

}  // namespace psring::worker
