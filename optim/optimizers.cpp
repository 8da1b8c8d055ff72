#include <utility>

#include <psring/optim/optimizers.h>
#include <psring/optim/rules.h>

namespace psring::optim {
namespace {

using Flags = std::set<std::string>;
using Maker = std::unique_ptr<Optimizer> (*)(const OptimizerOptions&);

/// Registers a rule that reads the options `flags`, and takes no arguments after its name.
void add(OptimizerRegistry& registry, const std::string& name, const std::string& help, const Flags& flags,
         Maker maker) {
  registry.add(name, help, [flags, maker](const Spec& spec, const OptimizerOptions& options) {
    if (spec.text() != spec.name())
      fail(ErrorKind::usage, "{}: '{}': {} takes no arguments after its name; its options are flags", spec.flag(),
           spec.text(), spec.name());
    options.allow_only(spec.name(), flags);
    return maker(options);
  });
}

std::unique_ptr<Optimizer> sgd(const OptimizerOptions& o, double momentum) {
  return make_sgd({o.momentum.value_or(momentum), o.nesterov, o.weight_decay.value_or(0)});
}

AdamOptions adam_options(const OptimizerOptions& o, const AdamOptions& defaults) {
  return {o.beta1.value_or(defaults.beta1), o.beta2.value_or(defaults.beta2), o.eps.value_or(defaults.eps),
          o.weight_decay.value_or(defaults.weight_decay)};
}

}  // namespace

void OptimizerOptions::allow_only(const std::string& rule, const std::set<std::string>& flags) const {
  const std::pair<const char*, bool> given[] = {{"--momentum", momentum.has_value()},
                                                {"--nesterov", nesterov},
                                                {"--weight-decay", weight_decay.has_value()},
                                                {"--betas", beta1.has_value() || beta2.has_value()},
                                                {"--eps", eps.has_value()},
                                                {"--alpha", alpha.has_value()}};
  for (const auto& [flag, set] : given) {
    if (!set || flags.contains(flag)) continue;
    std::string list;
    for (const std::string& known : flags) list += (list.empty() ? "" : ", ") + known;
    fail(ErrorKind::usage, "{}: the optimizer {} does not use it; {} uses: {}", flag, rule, rule, list);
  }
}

void register_builtin_optimizers(OptimizerRegistry& registry) {
  const Flags momentum = {"--momentum", "--nesterov", "--weight-decay"};
  const Flags adam = {"--betas", "--eps", "--weight-decay"};
  add(registry, "sgd", "gradient descent; --momentum 0", momentum, [](const OptimizerOptions& o) { return sgd(o, 0); });
  add(registry, "momentum", "gradient descent with momentum; --momentum 0.9", momentum,
      [](const OptimizerOptions& o) { return sgd(o, 0.9); });
  add(registry, "adagrad", "Adagrad; --eps 1e-10", {"--eps", "--weight-decay"}, [](const OptimizerOptions& o) {
    const AdagradOptions defaults;
    return make_adagrad({o.eps.value_or(defaults.eps), o.weight_decay.value_or(defaults.weight_decay)});
  });
  add(registry, "rmsprop", "RMSProp; --alpha 0.99 --eps 1e-8", {"--alpha", "--eps", "--weight-decay"},
      [](const OptimizerOptions& o) {
        const RmspropOptions defaults;
        return make_rmsprop({o.alpha.value_or(defaults.alpha), o.eps.value_or(defaults.eps),
                             o.weight_decay.value_or(defaults.weight_decay)});
      });
  add(registry, "adam", "Adam; --betas 0.9,0.999 --eps 1e-8", adam,
      [](const OptimizerOptions& o) { return make_adam(adam_options(o, {})); });
  add(registry, "adamw", "Adam with decoupled weight decay; --weight-decay 0.01", adam,
      [](const OptimizerOptions& o) { return make_adamw(adam_options(o, {.weight_decay = 0.01})); });
  add(registry, "adamw-8bit", "AdamW with moments in 8 bits; --weight-decay 0.01", adam,
      [](const OptimizerOptions& o) { return make_adamw_8bit(adam_options(o, {.weight_decay = 0.01})); });
  add(registry, "lamb", "LAMB, for large batches; --eps 1e-6; needs bsp", adam,
      [](const OptimizerOptions& o) { return make_lamb(adam_options(o, {.eps = 1e-6})); });
  register_builtin_row_rules(registry.rows);
}

}  // namespace psring::optim
