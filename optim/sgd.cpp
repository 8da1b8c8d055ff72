#include <psring/common/base/error.h>
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
    const Operands at = checked_operands(slots(), parameters, gradient, state, out);
    const float lr = update.lr;
    const float scale = update.gradient_scale;
    const auto decay = static_cast<float>(weight_decay_);
#pragma GCC ivdep
    for (std::size_t i = 0; i < at.size; ++i) {
      const float w = at.w[i];
      at.out[i] = w - lr * (scale * at.g[i] + decay * w);
    }
  }

 private:
  double weight_decay_;
};

template <bool kNesterov>
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
    const Operands at = checked_operands(slots(), parameters, gradient, state, out);
    float* const buffer = state.slot[0].data();
    const float lr = update.lr;
    const float scale = update.gradient_scale;
    const auto momentum = static_cast<float>(momentum_);
    const auto decay = static_cast<float>(weight_decay_);
#pragma GCC ivdep
    for (std::size_t i = 0; i < at.size; ++i) {
      const float w = at.w[i];
      const float g = scale * at.g[i] + decay * w;
      const float b = momentum * buffer[i] + g;
      buffer[i] = b;
      at.out[i] = w - lr * (kNesterov ? g + momentum * b : b);
    }
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
  if (options.nesterov) return std::make_unique<Momentum<true>>(options.momentum, options.weight_decay);
  return std::make_unique<Momentum<false>>(options.momentum, options.weight_decay);
}

}  // namespace psring::optim
