#pragma once

#include <optional>
#include <set>
#include <string>

#include <psring/common/base/text/registry.h>
#include <psring/optim/optimizer.h>
#include <psring/optim/rows/row_rule.h>

namespace psring::optim {

/// The optimizer's options on the command line. An option that was not given is empty, and takes the rule's default.
struct OptimizerOptions {
  std::optional<double> momentum{};
  bool nesterov = false;
  std::optional<double> weight_decay{};
  std::optional<double> beta1{};  ///< --betas BETA1,BETA2
  std::optional<double> beta2{};
  std::optional<double> eps{};
  std::optional<double> alpha{};

  /// Throws usage, naming the flag and the rule, if an option was given whose flag ("--eps") is not in `flags`: an
  /// option that a rule does not read must not be accepted silently.
  void allow_only(const std::string& rule, const std::set<std::string>& flags) const;
};

/// Use: `registry.make(Spec::parse("--optimizer", "adam"), options)`. A name takes no arguments after a colon.
class OptimizerRegistry : public Registry<Optimizer, const OptimizerOptions&> {
 public:
  Registry<RowRule> rows;  ///< the rules of tables' rows: `rows.make(Spec::parse("--table-optimizer", "adam"))`
};

/// sgd (with --momentum > 0, momentum), momentum (0.9), adagrad, rmsprop, adam, adamw (weight decay 0.01), adamw-8bit,
/// lamb; and the rules of register_builtin_row_rules.
void register_builtin_optimizers(OptimizerRegistry& registry);

}  // namespace psring::optim
