#include <psring/common/base/error.h>
#include <psring/worker/model/gpt.h>
#include <psring/worker/model/loss.h>

namespace psring::worker {
namespace {

constexpr std::size_t kMostLayers = 65536;

}  // namespace

GptShape parse_gpt(const Spec& spec) {
  spec.allow_only({"layers", "dim", "heads", "context", "vocab"});
  GptShape shape;
  shape.layers = spec.positive("layers", shape.layers);
  shape.dim = spec.positive("dim", shape.dim);
  shape.heads = spec.positive("heads", shape.heads);
  shape.context = spec.positive("context", shape.context);
  shape.vocab = spec.positive("vocab", shape.vocab);
  if (shape.dim % shape.heads != 0)
    fail(ErrorKind::usage, "--model {}: dim {} is not divisible by {} heads", spec.text(), shape.dim, shape.heads);
  if (shape.vocab > kMostTokens)
    fail(ErrorKind::usage, "--model {}: a vocabulary of {}; expected at most {}", spec.text(), shape.vocab,
         kMostTokens);
  if (shape.layers > kMostLayers)
    fail(ErrorKind::usage, "--model {}: {} layers; expected at most {}", spec.text(), shape.layers, kMostLayers);
  return shape;
}

Model make_gpt(const Spec& spec) {
  const GptShape shape = parse_gpt(spec);

  Model model;
  model.name = spec.text();
  model.input_cols = shape.context;
  model.tokens = true;
  model.rows_per_sample = shape.context;
  model.classes = shape.vocab;
  model.loss = make_cross_entropy();
  const auto add_block = [&model](auto... layers) {
    std::vector<std::size_t>& block = model.blocks.emplace_back();
    (..., (block.push_back(model.layers.size()), model.layers.push_back(std::move(layers))));
  };
  add_block(make_embedding(shape));
  for (std::size_t i = 0; i < shape.layers; ++i) add_block(make_attention_half(shape, i), make_mlp_half(shape, i));
  add_block(make_head(shape));
  return model;
}

}  // namespace psring::worker
