#include <psring/worker/model/conv_net.h>
#include <psring/worker/model/dlrm.h>
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
  register_zero(registries.strategies);
  register_zero3(registries.strategies);
}

}  // namespace psring::worker
