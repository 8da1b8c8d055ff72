#include <cmath>
#include <functional>
#include <limits>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/optim/job_optimizer.h>
#include <psring/optim/optimizers.h>
#include <psring/optim/rules.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::optim;
using Catch::Contains;
using test::error_of;
using test::normal_values;

namespace {

constexpr double kLr = 0.01;

/// One element of a published formula, in f64: the new w (LAMB: the direction), state in a and b.
struct Reference {
  double a = 0;
  double b = 0;
};
using Formula = std::function<double(Reference&, double w, double g, int t)>;

Formula sgd_formula(double mu, bool nesterov, double wd) {
  return [=](Reference& s, double w, double g, int t) {
    g += wd * w;
    if (mu == 0) return w - kLr * g;
    s.a = t == 1 ? g : mu * s.a + g;  // the buffer starts as the first gradient
    return w - kLr * (nesterov ? g + mu * s.a : s.a);
  };
}

Formula adagrad_formula(double eps, double wd) {
  return [=](Reference& s, double w, double g, int) {
    g += wd * w;
    s.a += g * g;
    return w - kLr * g / (std::sqrt(s.a) + eps);
  };
}

Formula rmsprop_formula(double alpha, double eps, double wd) {
  return [=](Reference& s, double w, double g, int) {
    g += wd * w;
    s.a = alpha * s.a + (1 - alpha) * g * g;
    return w - kLr * g / (std::sqrt(s.a) + eps);
  };
}

double adam_direction(Reference& s, double g, int t, double beta1, double beta2, double eps) {
  s.a = beta1 * s.a + (1 - beta1) * g;
  s.b = beta2 * s.b + (1 - beta2) * g * g;
  return s.a / (1 - std::pow(beta1, t)) / (std::sqrt(s.b / (1 - std::pow(beta2, t))) + eps);
}

Formula adam_formula(const AdamOptions& o) {
  return [=](Reference& s, double w, double g, int t) {
    return w - kLr * adam_direction(s, g + o.weight_decay * w, t, o.beta1, o.beta2, o.eps);
  };
}

Formula adamw_formula(const AdamOptions& o) {
  return [=](Reference& s, double w, double g, int t) {
    return w - kLr * o.weight_decay * w - kLr * adam_direction(s, g, t, o.beta1, o.beta2, o.eps);
  };
}

Formula lamb_formula(const AdamOptions& o) {
  return [=](Reference& s, double w, double g, int t) {
    return adam_direction(s, g, t, o.beta1, o.beta2, o.eps) + o.weight_decay * w;
  };
}

struct Case {
  const char* name;
  std::unique_ptr<Optimizer> rule;
  Formula formula;
  std::size_t slots;
};

std::vector<Case> all_rules() {
  std::vector<Case> cases;
  const auto add = [&](const char* name, std::unique_ptr<Optimizer> rule, Formula formula, std::size_t slots) {
    cases.push_back({name, std::move(rule), std::move(formula), slots});
  };
  for (const double wd : {0.0, 0.1}) {
    add("sgd", make_sgd({0, false, wd}), sgd_formula(0, false, wd), 0);
    add("momentum", make_sgd({0.9, false, wd}), sgd_formula(0.9, false, wd), 1);
    add("nesterov", make_sgd({0.7, true, wd}), sgd_formula(0.7, true, wd), 1);
    add("adagrad", make_adagrad({.weight_decay = wd}), adagrad_formula(1e-10, wd), 1);
    add("rmsprop", make_rmsprop({.weight_decay = wd}), rmsprop_formula(0.99, 1e-8, wd), 1);
    add("rmsprop 0.5", make_rmsprop({0.5, 0.1, wd}), rmsprop_formula(0.5, 0.1, wd), 1);
    const AdamOptions usual{.weight_decay = wd};
    const AdamOptions other{0.5, 0.9, 0.01, wd};
    add("adam", make_adam(usual), adam_formula(usual), 2);
    add("adam other betas", make_adam(other), adam_formula(other), 2);
    add("adamw", make_adamw(usual), adamw_formula(usual), 2);
    add("adamw other betas", make_adamw(other), adamw_formula(other), 2);
    add("lamb", make_lamb(usual), lamb_formula(usual), 2);
    add("lamb other betas", make_lamb(other), lamb_formula(other), 2);
  }
  return cases;
}

/// Parameters and state of one owner.
struct Owned {
  explicit Owned(std::vector<float> start) : w(std::move(start)), a(w.size()), b(w.size()) {}
  Optimizer::State state(std::size_t begin, std::size_t size) {
    return {{std::span(a).subspan(begin, size), std::span(b).subspan(begin, size)}};
  }
  std::vector<float> w, a, b;
};

Update update_at(int t, float scale = 1) {
  return {.count = static_cast<std::uint64_t>(t), .lr = static_cast<float>(kLr), .gradient_scale = scale};
}

}  // namespace

TEST_CASE("every rule follows its published formula over 50 updates") {
  for (const Case& c : all_rules()) {
    for (const std::size_t size : {0, 1, 7, 300}) {
      INFO(c.name << ", " << size << " elements");
      REQUIRE(c.rule->slots() == c.slots);
      Owned owned(normal_values(size, 1));
      std::vector<double> w(owned.w.begin(), owned.w.end());
      std::vector<Reference> state(size);
      std::vector<float> out(size);
      double worst = 0;
      for (int t = 1; t <= 50; ++t) {
        const std::vector<float> g = normal_values(size, 100 + t);
        const float scale = t % 2 == 0 ? 0.5F : 1.0F;
        c.rule->apply(update_at(t, scale), owned.w, g, owned.state(0, size), out);
        for (std::size_t i = 0; i < size; ++i) {
          const double expected = c.formula(state[i], w[i], double{scale} * g[i], t);
          worst = std::max(worst, std::abs(out[i] - expected) / std::max(1.0, std::abs(expected)));
          if (!c.rule->layerwise()) w[i] = expected;
        }
        if (!c.rule->layerwise()) owned.w = out;
      }
      CHECK(worst < 1e-5);
    }
  }
}

TEST_CASE("known answers of PyTorch's update, worked by hand") {
  // One element, w = 1, g = 0.5, lr = 0.1: the first update of each rule.
  const auto first = [](std::unique_ptr<Optimizer> rule) {
    std::vector<float> w{1}, g{0.5F}, a{0}, b{0}, out{0};
    rule->apply({.count = 1, .lr = 0.1F}, w, g, {{a, b}}, out);
    return out[0];
  };
  CHECK(first(make_sgd({})) == Approx(0.95));
  CHECK(first(make_sgd({.momentum = 0.9})) == Approx(0.95));
  CHECK(first(make_sgd({.momentum = 0.9, .nesterov = true})) == Approx(0.905));
  CHECK(first(make_sgd({.weight_decay = 0.1})) == Approx(0.94));
  CHECK(first(make_adagrad({})) == Approx(0.9));
  CHECK(first(make_rmsprop({})) == Approx(0).margin(1e-6));
  CHECK(first(make_adam({})) == Approx(0.9));
  CHECK(first(make_adamw({.weight_decay = 0.01})) == Approx(0.899));
  CHECK(first(make_lamb({.weight_decay = 0.01})) == Approx(1.01));
}

TEST_CASE("a multiple of a vector is added with one rounding, as in PyTorch") {
  // next * next has more digits than a float: a product that is rounded by itself leaves 0.
  const float next = 1 + std::ldexp(1.0F, -23);
  const float rounded = next * next;
  const float left = std::ldexp(1.0F, -46);
  std::vector<float> momentum{0}, out{0};
  const auto update = [&](const SgdOptions& options, float w_before, float g_before) {
    std::vector<float> w{w_before}, g{g_before};
    momentum = {0};
    make_sgd(options)->apply({.count = 1, .lr = next}, w, g, {{momentum}}, out);
    return out[0];
  };
  CHECK(update({}, rounded, next) == -left);
  CHECK(update({.momentum = 0.5}, rounded, next) == -left);
  update({.momentum = 0.5, .weight_decay = next}, next, -rounded);
  CHECK(momentum[0] == left);
}

TEST_CASE("an update has the same bits however the range is cut and whether it is in place") {
  const std::size_t size = 5 * 256 + 77;
  const std::vector<std::vector<std::size_t>> cuts = {{0, size}, {0, 256, size}, {0, 512, 768, 1024, 1280, size}};
  for (const Case& c : all_rules()) {
    INFO(c.name);
    std::vector<Owned> results;
    for (const bool in_place : {false, true}) {
      for (const std::vector<std::size_t>& cut : cuts) {
        Owned owned(normal_values(size, 1));
        std::vector<float> out(size);
        for (int t = 1; t <= 5; ++t) {
          const std::vector<float> g = normal_values(size, 100 + t);
          std::vector<float>& target = in_place ? owned.w : out;
          for (std::size_t k = 0; k + 1 < cut.size(); ++k) {
            const std::size_t begin = cut[k];
            const std::size_t n = cut[k + 1] - begin;
            c.rule->apply(update_at(t, 0.3F), std::span(owned.w).subspan(begin, n), std::span(g).subspan(begin, n),
                          owned.state(begin, n), std::span(target).subspan(begin, n));
          }
          owned.w = target;
        }
        results.push_back(owned);
      }
    }
    for (const Owned& result : results) {
      CHECK(result.w == results[0].w);
      CHECK(result.a == results[0].a);
      CHECK(result.b == results[0].b);
    }
  }
}

TEST_CASE("an update may be written over the gradient") {
  for (const Case& c : all_rules()) {
    INFO(c.name);
    Owned one(normal_values(333, 1));
    Owned two = one;
    std::vector<float> g = normal_values(333, 2);
    std::vector<float> out(333);
    c.rule->apply(update_at(1), one.w, g, one.state(0, 333), out);
    c.rule->apply(update_at(1), two.w, g, two.state(0, 333), g);
    CHECK(g == out);
    CHECK(one.a == two.a);
    CHECK(one.b == two.b);
  }
}

TEST_CASE("spans of different lengths are a bug that is found") {
  for (const Case& c : all_rules()) {
    std::vector<float> w(8), g(8), a(8), b(8), out(8), odd(7);
    const auto apply = [&](std::span<float> gradient, std::span<float> s0, std::span<float> s1, std::span<float> to) {
      c.rule->apply(update_at(1), w, gradient, {{s0, s1}}, to);
    };
    CHECK_THROWS_AS(apply(odd, a, b, out), Error);
    CHECK_THROWS_AS(apply(g, a, b, odd), Error);
    if (c.slots > 0) CHECK_THROWS_AS(apply(g, odd, b, out), Error);
    if (c.slots > 1) CHECK_THROWS_AS(apply(g, a, odd, out), Error);
    CHECK_NOTHROW(apply(g, a, b, out));
  }
}

TEST_CASE("names resolve to rules with PyTorch's defaults") {
  OptimizerRegistry registry;
  register_builtin_optimizers(registry);
  CHECK(registry.names() == "adagrad, adam, adamw, adamw-8bit, lamb, momentum, rmsprop, sgd");
  const auto same = [&](const char* name, const OptimizerOptions& options, std::unique_ptr<Optimizer> expected) {
    INFO(name);
    const auto rule = registry.make(Spec::parse("--optimizer", name), options);
    REQUIRE(rule->slots() == expected->slots());
    CHECK(rule->layerwise() == expected->layerwise());
    CHECK(rule->hyperparameters() == expected->hyperparameters());
    Owned one(normal_values(50, 1));
    Owned two = one;
    for (int t = 1; t <= 3; ++t) {
      const std::vector<float> g = normal_values(50, t, 1e-4F);  // small, so that eps shows
      rule->apply(update_at(t), one.w, g, one.state(0, 50), one.w);
      expected->apply(update_at(t), two.w, g, two.state(0, 50), two.w);
    }
    CHECK(one.w == two.w);
  };
  same("sgd", {}, make_sgd({0, false, 0}));
  same("sgd", {.momentum = 0.5, .nesterov = true, .weight_decay = 0.2}, make_sgd({0.5, true, 0.2}));
  same("momentum", {}, make_sgd({0.9, false, 0}));
  same("momentum", {.momentum = 0.5, .nesterov = true}, make_sgd({0.5, true, 0}));
  same("adagrad", {}, make_adagrad({1e-10, 0}));
  same("adagrad", {.weight_decay = 0.1, .eps = 1e-3}, make_adagrad({1e-3, 0.1}));
  same("rmsprop", {}, make_rmsprop({0.99, 1e-8, 0}));
  same("rmsprop", {.weight_decay = 0.1, .eps = 1e-3, .alpha = 0.9}, make_rmsprop({0.9, 1e-3, 0.1}));
  same("adam", {}, make_adam({0.9, 0.999, 1e-8, 0}));
  same("adam", {.weight_decay = 0.1, .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3}, make_adam({0.8, 0.9, 1e-3, 0.1}));
  same("adamw", {}, make_adamw({0.9, 0.999, 1e-8, 0.01}));
  same("adamw-8bit", {}, make_adamw_8bit({0.9, 0.999, 1e-8, 0.01}));
  same("adamw", {.weight_decay = 0}, make_adamw({0.9, 0.999, 1e-8, 0}));
  same("lamb", {}, make_lamb({0.9, 0.999, 1e-6, 0}));
}

TEST_CASE("a job is filled in with what its rule uses, and stays the same job") {
  OptimizerRegistry registry;
  register_builtin_optimizers(registry);
  for (const char* name : {"adagrad", "adam", "adamw", "lamb", "momentum", "rmsprop", "sgd"}) {
    INFO(name);
    JobOptions job;
    job.optimizer = name;
    const auto rule = make_optimizer(registry, job);
    fill_in(job, *rule);
    CHECK(job.lr == rule->default_lr());
    CHECK(job.weight_decay.has_value());
    CHECK(make_optimizer(registry, job)->hyperparameters() == rule->hyperparameters());
  }
  JobOptions given;
  given.optimizer = "adam";
  given.lr = 0.5;
  given.beta1 = 0.25;
  fill_in(given, *make_optimizer(registry, given));
  CHECK(std::tuple(given.lr, given.beta1, given.beta2, given.eps) == std::tuple(0.5, 0.25, 0.999, 1e-8));
  CHECK_FALSE(given.momentum);
}

TEST_CASE("unknown names and options that do nothing are usage errors") {
  OptimizerRegistry registry;
  register_builtin_optimizers(registry);
  const auto error = [&](const char* text, const OptimizerOptions& options = {}) {
    return error_of(ErrorKind::usage, [&] { registry.make(Spec::parse("--optimizer", text), options); });
  };
  CHECK_THAT(error("adamm"),
             Contains("--optimizer") && Contains("'adamm'") && Contains("adam, adamw, adamw-8bit, lamb"));
  CHECK_THAT(error("adam:lr=3"), Contains("--optimizer") && Contains("adam:lr=3"));
  CHECK_THAT(error("adam:"), Contains("--optimizer"));
  CHECK_THAT(error("adam", {.nesterov = true}), Contains("--nesterov") && Contains("adam"));
  CHECK_THAT(error("adamw", {.momentum = 0.9}), Contains("--momentum"));
  CHECK_THAT(error("rmsprop", {.momentum = 0.9}), Contains("--momentum") && Contains("--alpha"));
  CHECK_THAT(error("lamb", {.alpha = 0.9}), Contains("--alpha"));
  CHECK_THAT(error("sgd", {.beta1 = 0.9}), Contains("--betas"));
  CHECK_THAT(error("adagrad", {.beta2 = 0.9}), Contains("--betas"));
  CHECK_THAT(error("momentum", {.eps = 1e-8}), Contains("--eps"));
  CHECK_THAT(error("sgd", {.nesterov = true}), Contains("--nesterov") && Contains("--momentum"));
  CHECK_THAT(error("momentum", {.momentum = 0.0, .nesterov = true}), Contains("--nesterov"));
}

TEST_CASE("hyperparameters out of range are usage errors that name the flag") {
  OptimizerRegistry registry;
  register_builtin_optimizers(registry);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto error = [&](const char* text, const OptimizerOptions& options) {
    return error_of(ErrorKind::usage, [&] { registry.make(Spec::parse("--optimizer", text), options); });
  };
  for (const char* name : {"sgd", "adagrad", "rmsprop", "adam", "adamw", "lamb"})
    CHECK_THAT(error(name, {.weight_decay = -0.1}), Contains("--weight-decay"));
  for (const char* name : {"adagrad", "rmsprop", "adam", "adamw", "lamb"})
    CHECK_THAT(error(name, {.eps = -1e-8}), Contains("--eps"));
  CHECK_THAT(error("sgd", {.momentum = -0.1}), Contains("--momentum"));
  CHECK_THAT(error("sgd", {.momentum = nan}), Contains("--momentum"));
  CHECK_THAT(error("rmsprop", {.alpha = 1.0}), Contains("--alpha"));
  CHECK_THAT(error("adam", {.beta1 = 1.0}), Contains("--betas"));
  CHECK_THAT(error("adam", {.beta2 = -0.1}), Contains("--betas"));
}

TEST_CASE("a user's rule registers as the built-in ones do") {
  class Sign final : public Optimizer {
   public:
    std::size_t slots() const override { return 0; }
    void apply(const Update& update, std::span<const float> w, std::span<const float> g, State,
               std::span<float> out) const override {
      for (std::size_t i = 0; i < w.size(); ++i) out[i] = w[i] - update.lr * (g[i] > 0 ? 1.0F : -1.0F);
    }
  };
  OptimizerRegistry registry;
  register_builtin_optimizers(registry);
  const auto make = [](const Spec& spec, const OptimizerOptions& options) {
    options.allow_only(spec.name(), {});
    return std::make_unique<Sign>();
  };
  registry.add("sign", "the gradient's sign", make);
  CHECK(registry.make(Spec::parse("--optimizer", "sign"), {})->slots() == 0);
  CHECK_THAT(registry.help(), Contains("sign") && Contains("the gradient's sign\n"));
  CHECK_THROWS_AS(registry.make(Spec::parse("--optimizer", "sign"), {.eps = 1e-8}), Error);
  CHECK_THAT(error_of(ErrorKind::bug, [&] { registry.add("adam", "mine", make); }), Contains("'adam'"));
}
