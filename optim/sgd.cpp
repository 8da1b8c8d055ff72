#include <psring/common/base/text/error.h>
#include <psring/optim/operands.h>
#include <psring/optim/rules.h>

namespace psring::optim {
namespace {

class Sgd final : public Optimizer {
 public:
  explicit Sgd(double weight_decay) : weight_decay_(weight_decay) {}
  std::size_t slots() const override { return 0; }
  double default_lr() const override { return 0.1; }
  std::map<std::string, double> hyperparameters() const override {
    return {{"momentum", 0}, {"weight_decay", weight_decay_}};
  }

  void apply(const Update& update, std::span<const float> parameters, std::span<const float> gradient, State state,
             std::span<float> out) const override {
    apply_formula<Rule::sgd>(*formula(update), parameters, gradient, state, out);
  }
  std::optional<Formula> formula(const Update& update) const override {
    return Formula{
        .rule = Rule::sgd, .lr = update.lr, .scale = update.gradient_scale, .decay = static_cast<float>(weight_decay_)};
  }

 private:
  double weight_decay_;
};

template <Rule kRule>
class Momentum final : public Optimizer {
 public:
  Momentum(double momentum, double weight_decay) : momentum_(momentum), weight_decay_(weight_decay) {}
  std::size_t slots() const override { return 1; }
  double default_lr() const override { return 0.1; }
  std::map<std::string, double> hyperparameters() const override {
    return {{"momentum", momentum_}, {"weight_decay", weight_decay_}};
  }

  void apply(const Update& update, std::span<const float> parameters, std::span<const float> gradient, State state,
             std::span<float> out) const override {
    apply_formula<kRule>(*formula(update), parameters, gradient, state, out);
  }
  std::optional<Formula> formula(const Update& update) const override {
    return Formula{.rule = kRule,
                   .lr = update.lr,
                   .scale = update.gradient_scale,
                   .decay = static_cast<float>(weight_decay_),
                   .keep = static_cast<float>(momentum_)};
  }

 private:
  double momentum_;
  double weight_decay_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options) {
  require_at_least_zero("--momentum", options.momentum);
  require_at_least_zero("--weight-decay", options.weight_decay);
  if (options.momentum == 0) {
    if (options.nesterov) fail(ErrorKind::usage, "--nesterov: needs --momentum > 0");
    return std::make_unique<Sgd>(options.weight_decay);
  }
  if (options.nesterov) return std::make_unique<Momentum<Rule::nesterov>>(options.momentum, options.weight_decay);
  return std::make_unique<Momentum<Rule::momentum>>(options.momentum, options.weight_decay);
}

}  // namespace psring::optim
