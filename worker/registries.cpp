#include <psring/worker/model/conv_net.h>
#include <psring/worker/model/dlrm.h>
#include <psring/worker/model/dot_products.h>
#include <psring/worker/model/factorization.h>
#include <psring/worker/model/gpt.h>
#include <psring/worker/model/mlp.h>
#include <psring/worker/registries.h>
#include <psring/worker/strategy/strategies.h>

namespace psring::worker {

void register_builtins(Registries& registries) {
  const auto model = [&](const char* name, const char* help, Model (*make)(const Spec&)) {
    registries.models.add(name, help, [make](const Spec& spec) { return std::make_unique<Model>(make(spec)); });
  };
  model("mlp", "mlp:784-512-512-10: linear layers, ReLU between them, cross-entropy; d0.2 after a width: dropout",
        make_mlp);
  model("mse-mlp", "mse-mlp:8-64-64-1: the same for real targets, with the mean square of the error", make_mse_mlp);
  model("conv",
        "conv:1x28x28-16c3-p2-32c3-r3-p2-d0.2-128-10: channels x height x width of the image; then 16c3: convolution "
        "to 16 channels, kernel 3, and ReLU; p2: largest of 2 x 2 pixels; r3: residual block of two convolutions; "
        "d0.2: dropout; 128: linear layer and ReLU; the last is linear, with cross-entropy",
        make_conv_net);
  model("bn-mlp", "bn-mlp:784-512-512-10: the same with batch norm before each ReLU", make_bn_mlp);
  model("gelu-mlp",
        "gelu-mlp:dim=1024,layers=4: square linear layers without bias, GELU after each; the loss is the mean square "
        "of the output. Keys: dim (1024), layers (4)",
        make_gelu_mlp);
  model("gpt",
        "gpt:layers=6,dim=384,heads=6,context=256,vocab=256: a GPT-2. Keys, with these defaults: layers (blocks), dim "
        "(width), heads (of attention), context (tokens of a sample), vocab (different tokens)",
        make_gpt);
  model("dlrm",
        "dlrm:dense=13,features=26,dim=16,bottom=64-16,top=64-32-1: a recommendation model with one table for all "
        "features' keys, the products of all pairs, and binary cross-entropy. Keys, with these defaults: dense (real "
        "inputs), features (that are keys), dim (width of a row), bottom and top (widths of linear layers)",
        make_dlrm);
  model("fm",
        "fm:dense=13,features=26,dim=8: a factorization machine: a weight for each real input and each key, and the "
        "products of all pairs of keys' vectors; binary cross-entropy. Keys, with these defaults: dense (real inputs), "
        "features (that are keys), dim (width of a vector)",
        make_fm);
  model("mf",
        "mf:dim=16: matrix factorization: a rating is the product of a user's and an item's vectors plus their biases; "
        "the mean square of the error. Key: dim (16)",
        make_mf);
  model("two-tower",
        "two-tower:dim=16,mode=sum: the product of two vectors, each the sum or the mean of the rows of a thing's "
        "features; binary cross-entropy. Keys: dim (16), mode (sum or mean)",
        make_two_tower);
  model("skip-gram",
        "skip-gram:dim=64,negatives=5: word vectors by negative sampling. Keys, with these defaults: dim (width of a "
        "vector), negatives (words that are drawn for each pair)",
        make_skip_gram);

  const auto tensor_model = [&](const char* name, Model (*make)(const Spec&, const TensorPart&)) {
    registries.tensor_models.add(name, "", [make](const Spec& spec, const TensorPart& part) {
      return std::make_unique<Model>(make(spec, part));
    });
  };
  tensor_model("mlp", make_mlp);
  tensor_model("mse-mlp", make_mse_mlp);
  tensor_model("gelu-mlp", make_gelu_mlp);
  tensor_model("gpt", make_gpt);

  register_builtin_datasets(registries.datasets);

  register_single(registries.strategies);
  register_ps(registries.strategies);
  register_ddp_naive(registries.strategies);
  register_ddp(registries.strategies);
  register_hybrid(registries.strategies);
  register_zero(registries.strategies);
  register_zero3(registries.strategies);
}

std::unique_ptr<StrategyKind> make_strategy_kind(const Registries& registries, const char* flag,
                                                 const std::string& strategy, const std::string& model) {
  std::unique_ptr<StrategyKind> kind = registries.strategies.make(Spec::parse(flag, strategy));
  if (!kind->tables || !kind->ring || kind->row_servers) return kind;
  const Spec spec = Spec::parse("--model", model);
  kind->row_servers = registries.models.contains(spec.name()) && !registries.models.make(spec)->tables.empty();
  return kind;
}

}  // namespace psring::worker
