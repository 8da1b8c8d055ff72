#include <utility>

#include <psring/worker/model/gpt.h>
#include <psring/worker/model/mlp.h>
#include <psring/worker/registries.h>
#include <psring/worker/strategy/strategies.h>

namespace psring::worker {

void register_builtins(Registries& registries) {
  const auto model = [&](const char* name, const char* help, Model (*make)(const Spec&)) {
    registries.models.add(name, help, [make](const Spec& spec) { return std::make_unique<Model>(make(spec)); });
  };
  model("mlp", "mlp:784-512-512-10: linear layers, ReLU between them, cross-entropy", make_mlp);
  model("bn-mlp", "bn-mlp:784-512-512-10: the same with batch norm before each ReLU", make_bn_mlp);
  model("gelu-mlp",
        "gelu-mlp:dim=1024,layers=4: square linear layers without bias, GELU after each; the loss is the mean square "
        "of the output. Keys: dim (1024), layers (4)",
        make_gelu_mlp);
  model("gpt",
        "gpt:layers=6,dim=384,heads=6,context=256,vocab=256: a GPT-2. Keys, with these defaults: layers (blocks), dim "
        "(width), heads (of attention), context (tokens of a sample), vocab (different tokens)",
        make_gpt);

  register_builtin_datasets(registries.datasets);

  registries.strategies.add("single", "one process, no exchange", [](const Spec& spec) {
    spec.allow_only({});
    return std::make_unique<StrategyKind>(StrategyKind{
        .servers = false,
        .on_device = true,
        .one_worker = true,
        .exact = true,
        .make = [spec](const Context& context, const JobOptions& job) { return make_single(spec, context, job); }});
  });
  const auto ps = [&](const char* name, const char* help, bool colocated, const char* consistency = "bsp") {
    registries.strategies.add(name, help, [colocated, consistency](const Spec& spec) {
      spec.allow_only({});
      return std::make_unique<StrategyKind>(StrategyKind{.servers = true,
                                                         .colocated = colocated,
                                                         .compresses = true,
                                                         .on_device = true,
                                                         .consistency = consistency,
                                                         .make = [spec](const Context& context, const JobOptions& job) {
                                                           return make_ps(spec, context, job.optimizer_on == "server");
                                                         }});
    });
  };
  ps("ps", "servers own all parameters; push and pull, bsp", false);
  ps("ps-ssp", "ps where each push is an update, and nobody is more than 3 steps ahead", false, "ssp:3");
  ps("ps-async", "ps where each push is an update, and nobody waits", false, "asp");
  ps("ps-colocated", "ps with a server in each worker's process", true);
  registries.strategies.add(
      "dp", "the classic: one server in worker 0, which also scatters the batch; the optimizer on the workers",
      [](const Spec& spec) {
        return std::make_unique<StrategyKind>(
            StrategyKind{.servers = true,
                         .colocated = true,
                         .one_server = true,
                         .scatters = true,
                         .compresses = true,
                         .on_device = true,
                         .optimizer_on = "worker",
                         .make = [spec](const Context& context, const JobOptions& job) {
                           return make_ps(spec, context, job.optimizer_on == "server");
                         }});
      });
  const auto ps_zero = [&](const char* name, const char* help, int stage) {
    registries.strategies.add(name, help, [stage](const Spec& spec) {
      return std::make_unique<StrategyKind>(
          StrategyKind{.servers = true,
                       .compresses = true,
                       .gathers = stage == 3,
                       .at_owner = true,
                       .on_device = true,
                       .stage = stage,
                       .make = [stage, spec](const Context& context, const JobOptions& job) {
                         return make_ps_zero(stage, spec, context, job);
                       }});
    });
  };
  ps_zero("ps-zero2", "ps, but a gradient goes as soon as it is pushed", 2);
  ps_zero("ps-zero3", "parameters go, too: each unit is pulled when a pass needs it", 3);
  registries.strategies.add("ddp-naive", "workers average gradients, one all-reduce a tensor after backward",
                            [](const Spec& spec) {
                              return std::make_unique<StrategyKind>(
                                  StrategyKind{.ring = true,
                                               .whole = true,
                                               .on_device = true,
                                               .make = [spec](const Context& context, const JobOptions& job) {
                                                 return make_ddp_naive(spec, context, job);
                                               }});
                            });
  const auto zero = [&](const char* name, const char* help, int stage) {
    registries.strategies.add(name, help, [stage](const Spec& spec) {
      return std::make_unique<StrategyKind>(
          StrategyKind{.ring = true,
                       .buckets = stage == 1,
                       .compresses = true,
                       .gathers = stage == 3,
                       .at_owner = stage >= 2,
                       .on_device = true,
                       .stage = stage,
                       .make = [stage, spec](const Context& context, const JobOptions& job) {
                         return make_zero(stage, spec, context, job);
                       }});
    });
  };
  zero("zero1", "ddp, but optimizer state by owner", 1);
  zero("zero2", "gradients by owner, too", 2);
  zero("zero3", "parameters by owner, too: each unit is gathered when a pass needs it", 3);
  zero("fsdp", "another name for zero3", 3);
  registries.strategies.add(
      "ddp", "workers average gradients in buckets, while backward goes on", [](const Spec& spec) {
        return std::make_unique<StrategyKind>(StrategyKind{
            .ring = true,
            .buckets = true,
            .compresses = true,
            .whole = true,
            .on_device = true,
            .make = [spec](const Context& context, const JobOptions& job) { return make_ddp(spec, context, job); }});
      });
}

}  // namespace psring::worker
