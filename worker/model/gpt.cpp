#include <string>

#include <fmt/core.h>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/gpt.h>
#include <psring/worker/model/graph.h>
#include <psring/worker/model/loss.h>
#include <psring/worker/model/parallel/cross_entropy.h>

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

Model make_gpt(const Spec& spec) { return make_gpt(spec, {}); }

Model make_gpt(const Spec& spec, const TensorPart& part) {
  const GptShape shape = parse_gpt(spec);
  if (shape.heads % part.size() != 0)
    fail(ErrorKind::usage, "--tensor {}: --model {}: {} heads of attention are not divisible by {}", part.size(),
         spec.text(), shape.heads, part.size());
  if (shape.vocab < part.size())
    fail(ErrorKind::usage, "--tensor {}: --model {}: a vocabulary of {} has no token for each part", part.size(),
         spec.text(), shape.vocab);

  Model model;
  model.name = spec.text();
  model.input_cols = shape.context;
  model.tokens = true;
  model.rows_per_sample = shape.context;
  model.classes = shape.vocab;
  model.loss = part.whole() ? make_cross_entropy() : make_parallel_cross_entropy(shape.vocab, part);
  Graph graph(model, "tokens");
  std::string stream = "embedding";  // the residual stream: each half adds to it
  const auto add_half = [&](const std::string& name, std::unique_ptr<Layer> half) {
    model.blocks.back().push_back(model.layers.size());
    graph.add(name, std::move(half), {{"x", stream}, {"residual", stream}});
    stream = name;
  };
  model.blocks.push_back({0});
  graph.add(stream, make_embedding(shape, part), "tokens");
  for (std::size_t i = 0; i < shape.layers; ++i) {
    model.blocks.emplace_back();
    add_half(fmt::format("h.{}.attn", i), make_attention_half(shape, i, part));
    add_half(fmt::format("h.{}.mlp", i), make_mlp_half(shape, i, part));
  }
  model.blocks.push_back({model.layers.size()});
  graph.add("head", make_head(shape, part), stream);
  return model;
}

}  // namespace psring::worker
