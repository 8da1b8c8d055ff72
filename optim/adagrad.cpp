#include <map>
#include <string>
#include <utility>

#include <psring/optim/operands.h>
#include <psring/optim/rules.h>

namespace psring::optim {
namespace {

/// Implements Adagrad (keep 1, take 1) and RMSProp (keep alpha, take 1 - alpha), which sum squares in different ways.
class SquareScaled final : public Optimizer {
 public:
  SquareScaled(double keep, double take, std::map<std::string, double> options)
      : keep_(static_cast<float>(keep)),
        take_(static_cast<float>(take)),
        eps_(static_cast<float>(options.at("eps"))),
        weight_decay_(static_cast<float>(options.at("weight_decay"))),
        options_(std::move(options)) {}
  std::size_t slots() const override { return 1; }
  double default_lr() const override { return 0.01; }
  std::map<std::string, double> hyperparameters() const override { return options_; }

  void apply(const Update& update, std::span<const float> parameters, std::span<const float> gradient, State state,
             std::span<float> out) const override {
    apply_formula<Rule::square_scaled>(*formula(update), parameters, gradient, state, out);
  }
  std::optional<Formula> formula(const Update& update) const override {
    return Formula{.rule = Rule::square_scaled,
                   .lr = update.lr,
                   .scale = update.gradient_scale,
                   .decay = weight_decay_,
                   .keep = keep_,
                   .take = take_,
                   .eps = eps_};
  }

 private:
  float keep_;
  float take_;
  float eps_;
  float weight_decay_;
  std::map<std::string, double> options_;  ///< by name
};

}  // namespace

std::unique_ptr<Optimizer> make_adagrad(const AdagradOptions& options) {
  require_at_least_zero("--eps", options.eps);
  require_at_least_zero("--weight-decay", options.weight_decay);
  return std::make_unique<SquareScaled>(
      1, 1, std::map<std::string, double>{{"eps", options.eps}, {"weight_decay", options.weight_decay}});
}

std::unique_ptr<Optimizer> make_rmsprop(const RmspropOptions& options) {
  require_fraction("--alpha", options.alpha);
  require_at_least_zero("--eps", options.eps);
  require_at_least_zero("--weight-decay", options.weight_decay);
  return std::make_unique<SquareScaled>(
      options.alpha, 1 - options.alpha,
      std::map<std::string, double>{
          {"alpha", options.alpha}, {"eps", options.eps}, {"weight_decay", options.weight_decay}});
}

}  // namespace psring::optim
