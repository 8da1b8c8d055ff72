#include <cmath>

#include <psring/optim/operands.h>
#include <psring/optim/rules.h>

namespace psring::optim {
namespace {

/// Adam's moments, for the three rules that use them.
template <Rule kRule>
class Moments final : public Optimizer {
 public:
  explicit Moments(const AdamOptions& options) : options_(options) {}
  std::size_t slots() const override { return 2; }
  bool layerwise() const override { return kRule == Rule::lamb; }
  std::map<std::string, double> hyperparameters() const override {
    return {{"beta1", options_.beta1},
            {"beta2", options_.beta2},
            {"eps", options_.eps},
            {"weight_decay", options_.weight_decay}};
  }

  void apply(const Update& update, std::span<const float> parameters, std::span<const float> gradient, State state,
             std::span<float> out) const override {
    apply_formula<kRule>(*formula(update), parameters, gradient, state, out);
  }

  std::optional<Formula> formula(const Update& update) const override {
    const AdamOptions& o = options_;
    const auto t = static_cast<double>(update.count);
    // For LAMB, the owner multiplies by lr once the tensor's norms are known.
    const double lr = kRule == Rule::lamb ? 1 : double{update.lr};
    return Formula{.rule = kRule,
                   .lr = update.lr,
                   .scale = update.gradient_scale,
                   .decay = static_cast<float>(o.weight_decay),
                   .keep = static_cast<float>(o.beta1),
                   .take = static_cast<float>(1 - o.beta1),
                   .keep2 = static_cast<float>(o.beta2),
                   .take2 = static_cast<float>(1 - o.beta2),
                   .eps = static_cast<float>(o.eps),
                   .shrink = static_cast<float>(1 - double{update.lr} * o.weight_decay),
                   .step = static_cast<float>(lr / (1 - std::pow(o.beta1, t))),
                   .root = static_cast<float>(1 / std::sqrt(1 - std::pow(o.beta2, t)))};
  }

 private:
  AdamOptions options_;
};

/// AdamW with moments in 8 bits. No device has a formula for it.
class AdamW8Bit final : public Optimizer {
 public:
  explicit AdamW8Bit(const AdamOptions& options) : rule_(options) {}
  std::size_t slots() const override { return rule_.slots(); }
  unsigned state_bits() const override { return 8; }
  std::map<std::string, double> hyperparameters() const override { return rule_.hyperparameters(); }
  void apply(const Update& update, std::span<const float> parameters, std::span<const float> gradient, State state,
             std::span<float> out) const override {
    rule_.apply(update, parameters, gradient, state, out);
  }

 private:
  Moments<Rule::adamw> rule_;
};

void check_options(const AdamOptions& options) {
  require_fraction("--betas", options.beta1);
  require_fraction("--betas", options.beta2);
  require_at_least_zero("--eps", options.eps);
  require_at_least_zero("--weight-decay", options.weight_decay);
}

template <Rule kRule>
std::unique_ptr<Optimizer> make(const AdamOptions& options) {
  check_options(options);
  return std::make_unique<Moments<kRule>>(options);
}

}  // namespace

std::unique_ptr<Optimizer> make_adam(const AdamOptions& options) { return make<Rule::adam>(options); }
std::unique_ptr<Optimizer> make_adamw(const AdamOptions& options) { return make<Rule::adamw>(options); }
std::unique_ptr<Optimizer> make_adamw_8bit(const AdamOptions& options) {
  check_options(options);
  return std::make_unique<AdamW8Bit>(options);
}
std::unique_ptr<Optimizer> make_lamb(const AdamOptions& options) { return make<Rule::lamb>(options); }

}  // namespace psring::optim
