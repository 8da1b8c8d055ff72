#include <cmath>

#include <psring/optim/operands.h>
#include <psring/optim/rules.h>

namespace psring::optim {
namespace {

enum class Rule { adam, adamw, lamb };

/// Adam's moments, and what the three rules make of them. Which rule is known when it is compiled, so that
/// each has a loop of its own without branches.
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
    const Operands at = checked_operands(slots(), parameters, gradient, state, out);
    float* const m = state.slot[0].data();
    float* const v = state.slot[1].data();
    const Coefficients c(options_, update);
#pragma GCC ivdep
    for (std::size_t i = 0; i < at.size; ++i) {
      const float w = at.w[i];
      const float g = kRule == Rule::adam ? c.scale * at.g[i] + c.decay * w : c.scale * at.g[i];
      const float mean = c.beta1 * m[i] + c.take1 * g;
      const float square = c.beta2 * v[i] + c.take2 * (g * g);
      m[i] = mean;
      v[i] = square;
      const float direction = c.step * mean / (std::sqrt(square) * c.root + c.eps);
      if constexpr (kRule == Rule::adam) at.out[i] = w - direction;
      if constexpr (kRule == Rule::adamw) at.out[i] = c.shrink * w - direction;
      if constexpr (kRule == Rule::lamb) at.out[i] = direction + c.decay * w;
    }
  }

 private:
  struct Coefficients {
    Coefficients(const AdamOptions& o, const Update& update)
        : scale(update.gradient_scale),
          decay(static_cast<float>(o.weight_decay)),
          shrink(static_cast<float>(1 - double{update.lr} * o.weight_decay)),
          beta1(static_cast<float>(o.beta1)),
          take1(static_cast<float>(1 - o.beta1)),
          beta2(static_cast<float>(o.beta2)),
          take2(static_cast<float>(1 - o.beta2)),
          eps(static_cast<float>(o.eps)) {
      const auto t = static_cast<double>(update.count);
      // LAMB's owner multiplies by lr, once the tensor's norms are known.
      const double lr = kRule == Rule::lamb ? 1 : double{update.lr};
      step = static_cast<float>(lr / (1 - std::pow(o.beta1, t)));
      root = static_cast<float>(1 / std::sqrt(1 - std::pow(o.beta2, t)));
    }
    float scale, decay, shrink, beta1, take1, beta2, take2, eps;
    float step = 0;  ///< lr / (1 - beta1^t)
    float root = 0;  ///< 1 / sqrt(1 - beta2^t)
  };

  AdamOptions options_;
};

template <Rule kRule>
std::unique_ptr<Optimizer> make(const AdamOptions& options) {
  require_fraction("--betas", options.beta1);
  require_fraction("--betas", options.beta2);
  require_at_least_zero("--eps", options.eps);
  require_at_least_zero("--weight-decay", options.weight_decay);
  return std::make_unique<Moments<kRule>>(options);
}

}  // namespace

std::unique_ptr<Optimizer> make_adam(const AdamOptions& options) { return make<Rule::adam>(options); }
std::unique_ptr<Optimizer> make_adamw(const AdamOptions& options) { return make<Rule::adamw>(options); }
std::unique_ptr<Optimizer> make_lamb(const AdamOptions& options) { return make<Rule::lamb>(options); }

}  // namespace psring::optim
