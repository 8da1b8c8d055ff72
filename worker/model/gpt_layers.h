#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <psring/worker/model/layer.h>

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
};

// The layers of GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019), with its tensors'
// names, shapes and initial values. Weights of linear layers are [in, out] and start normal with a standard deviation
// of 0.02 (wpe, too, as in the published PyTorch code; the TensorFlow code has 0.01), or 0.02 / sqrt(2 layers) for
// projections into the residual stream. Biases start at 0, layer norms' weights at 1. The tokens are R = batch *
// context rows.

/// Maps token ids as floats [batch, context] to wte[id] + wpe[position], [R, dim]. Throws data, naming sample and
/// position, if an id is not a whole number below the vocabulary.
std::unique_ptr<Layer> make_embedding(const GptShape& shape);

/// Names of the inputs of both halves of a block, which have the same shape. In a GPT, both are the residual stream.
std::vector<std::string> half_inputs();
/// Returns the shape of a half's output. Throws usage if its inputs have different shapes.
Shape half_output(std::span<const Shape> inputs);
/// The end of a half's backward, from the gradient of its norm's output, `d_normal`, to the norm's gradients and those
/// of both inputs. Overwrites d_normal. scratch: layer_norm_scratch(dim).
void half_backward(const Backward& pass, Matrix d_normal, std::span<const float> statistics, std::size_t norm_weight,
                   std::size_t norm_bias, std::span<float> scratch);

/// y = residual + c_proj(attention(c_attn(ln_1(x)))) of block `index`. Saves for backward: ln_1's statistics (2R),
/// queries, keys and values (3R dim), the heads' output (R dim), and a log-sum per row and head (R heads).
std::unique_ptr<Layer> make_attention_half(const GptShape& shape, std::size_t index);

/// y = residual + c_proj(gelu(c_fc(ln_2(x)))) of block `index`. Saves ln_2's statistics (2R) and GELU's input (4R dim).
/// The pass that needs GELU's derivative recomputes its output.
std::unique_ptr<Layer> make_mlp_half(const GptShape& shape, std::size_t index);

/// logits [R, vocab] = ln_f(x) wte^T. Saves ln_f's statistics (2R).
std::unique_ptr<Layer> make_head(const GptShape& shape);

}  // namespace psring::worker
