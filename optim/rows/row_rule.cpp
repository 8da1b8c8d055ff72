#include <cmath>

#include <psring/common/base/text/registry.h>
#include <psring/optim/operands.h>
#include <psring/optim/rows/row_rule.h>

namespace psring::optim {
namespace {

/// Applies an elementwise formula, as dense parameters' rules do.
template <Rule kRule>
void apply_elementwise(const Formula& formula, std::size_t width, const RowRule::Rows& rows) {
  const float* gradient = rows.gradients.data();
  for (float* const values : rows.values) {
    Optimizer::State state;
    for (std::size_t slot = 0; slot < slots_of(kRule); ++slot) state.slot[slot] = {values + (slot + 1) * width, width};
    apply_formula<kRule>(formula, {values, width}, {gradient, width}, state, {values, width});
    gradient += width;
  }
}

class RowSgd final : public RowRule {
 public:
  const char* name() const override { return "sgd"; }
  std::size_t slots() const override { return 0; }
  double default_lr() const override { return 0.1; }
  void apply(const Update& update, std::size_t width, const Rows& rows) const override {
    apply_elementwise<Rule::sgd>({.rule = Rule::sgd, .lr = update.lr}, width, rows);
  }
};

class RowAdagrad final : public RowRule {
 public:
  explicit RowAdagrad(double eps) : eps_(static_cast<float>(eps)) {}
  const char* name() const override { return "adagrad"; }
  std::size_t slots() const override { return 1; }
  double default_lr() const override { return 0.01; }
  void apply(const Update& update, std::size_t width, const Rows& rows) const override {
    apply_elementwise<Rule::square_scaled>(
        {.rule = Rule::square_scaled, .lr = update.lr, .keep = 1, .take = 1, .eps = eps_}, width, rows);
  }

 private:
  const float eps_;
};

class RowwiseAdagrad final : public RowRule {
 public:
  explicit RowwiseAdagrad(double eps) : eps_(static_cast<float>(eps)) {}
  const char* name() const override { return "rowwise-adagrad"; }
  std::size_t slots() const override { return 1; }
  std::size_t slot_width(std::size_t /*width*/) const override { return 1; }
  double default_lr() const override { return 0.01; }
  void apply(const Update& update, std::size_t width, const Rows& rows) const override {
    const float* g = rows.gradients.data();
    for (float* const w : rows.values) {
      float& sum = w[width];
      sum += mean_square(g, width);
      const float step = update.lr / (std::sqrt(sum) + eps_);
#pragma GCC ivdep
      for (std::size_t i = 0; i < width; ++i) w[i] = std::fma(-step, g[i], w[i]);
      g += width;
    }
  }

 private:
  static float mean_square(const float* g, std::size_t width) {
    float lanes[8] = {};
    std::size_t at = 0;
    for (; at + 8 <= width; at += 8)
      for (std::size_t lane = 0; lane < 8; ++lane) lanes[lane] += g[at + lane] * g[at + lane];
    for (std::size_t i = at; i < width; ++i) lanes[i - at] += g[i] * g[i];
    float sum = 0;
    for (const float lane : lanes) sum += lane;
    return sum / static_cast<float>(width);
  }

  const float eps_;
};

class RowAdam final : public RowRule {
 public:
  RowAdam(double beta1, double beta2, double eps) : beta1_(beta1), beta2_(beta2), eps_(eps) {}
  const char* name() const override { return "adam"; }
  std::size_t slots() const override { return 2; }
  double default_lr() const override { return 1e-3; }
  const char* difference() const override {
    return "rows without a gradient in a step keep their values and moments, as with torch.optim.SparseAdam; dense "
           "Adam "
           "moves them as well";
  }
  void apply(const Update& update, std::size_t width, const Rows& rows) const override {
    const auto t = static_cast<double>(update.count);
    const double root = 1 / std::sqrt(1 - std::pow(beta2_, t));
    apply_elementwise<Rule::adam>({.rule = Rule::adam,
                                   .lr = update.lr,
                                   .keep = static_cast<float>(beta1_),
                                   .take = static_cast<float>(1 - beta1_),
                                   .keep2 = static_cast<float>(beta2_),
                                   .take2 = static_cast<float>(1 - beta2_),
                                   .eps = static_cast<float>(eps_ * root),  // is added before the bias is corrected
                                   .step = static_cast<float>(update.lr / (1 - std::pow(beta1_, t))),
                                   .root = static_cast<float>(root)},
                                  width, rows);
  }

 private:
  const double beta1_;
  const double beta2_;
  const double eps_;
};

class RowFtrl final : public RowRule {
 public:
  RowFtrl(double beta, double l1, double l2)
      : beta_(static_cast<float>(beta)), l1_(static_cast<float>(l1)), l2_(static_cast<float>(l2)) {}
  const char* name() const override { return "ftrl"; }
  std::size_t slots() const override { return 2; }
  double default_lr() const override { return 0.1; }
  void apply(const Update& update, std::size_t width, const Rows& rows) const override {
    const float alpha = update.lr;
    if (alpha == 0) return;  // the formula would divide by it
    const float* g = rows.gradients.data();
    for (float* const w : rows.values) {
      float* const z = w + width;
      float* const n = z + width;
#pragma GCC ivdep
      for (std::size_t i = 0; i < width; ++i) {
        const float square = n[i] + g[i] * g[i];
        const float root = std::sqrt(square);
        z[i] += g[i] - (root - std::sqrt(n[i])) / alpha * w[i];
        n[i] = square;
        const float beyond = std::fabs(z[i]) - l1_;
        w[i] = beyond <= 0 ? 0 : -std::copysign(beyond, z[i]) / ((beta_ + root) / alpha + l2_);
      }
      g += width;
    }
  }

 private:
  const float beta_;
  const float l1_;
  const float l2_;
};

/// A number of the spec, at least 0, or below 1 as well.
double at_least_zero(const Spec& spec, const char* key, double fallback) {
  const double value = spec.number(key, fallback);
  require_at_least_zero(spec.flag() + ": " + key, value);
  return value;
}
double fraction(const Spec& spec, const char* key, double fallback) {
  const double value = spec.number(key, fallback);
  require_fraction(spec.flag() + ": " + key, value);
  return value;
}

}  // namespace

void register_builtin_row_rules(Registry<RowRule>& rules) {
  rules.add("sgd", "gradient descent", [](const Spec& spec) {
    spec.allow_only({});
    return std::make_unique<RowSgd>();
  });
  rules.add("adagrad", "Adagrad; eps=1e-10", [](const Spec& spec) {
    spec.allow_only({"eps"});
    return std::make_unique<RowAdagrad>(at_least_zero(spec, "eps", 1e-10));
  });
  rules.add("rowwise-adagrad", "Adagrad with one state of a row; eps=1e-8", [](const Spec& spec) {
    spec.allow_only({"eps"});
    return std::make_unique<RowwiseAdagrad>(at_least_zero(spec, "eps", 1e-8));
  });
  rules.add("adam", "Adam of the rows with a gradient; beta1=0.9 beta2=0.999 eps=1e-8", [](const Spec& spec) {
    spec.allow_only({"beta1", "beta2", "eps"});
    return std::make_unique<RowAdam>(fraction(spec, "beta1", 0.9), fraction(spec, "beta2", 0.999),
                                     at_least_zero(spec, "eps", 1e-8));
  });
  rules.add("ftrl", "follow the regularized leader; beta=1 l1=0 l2=0", [](const Spec& spec) {
    spec.allow_only({"beta", "l1", "l2"});
    return std::make_unique<RowFtrl>(at_least_zero(spec, "beta", 1), at_least_zero(spec, "l1", 0),
                                     at_least_zero(spec, "l2", 0));
  });
}

std::unique_ptr<RowRule> make_row_rule(const Spec& spec) {
  Registry<RowRule> rules;
  register_builtin_row_rules(rules);
  return rules.make(spec);
}

}  // namespace psring::optim
