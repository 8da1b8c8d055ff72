#include <cmath>
#include <numbers>

#include <psring/common/base/text/error.h>
#include <psring/optim/schedule.h>

namespace psring::optim {
namespace {

double warm(std::uint64_t step, std::uint64_t warmup) {
  return static_cast<double>(step + 1) / static_cast<double>(warmup);
}

class Constant final : public Schedule {
 public:
  explicit Constant(std::uint64_t warmup) : warmup_(warmup) {}
  double factor(std::uint64_t step) const override { return step < warmup_ ? warm(step, warmup_) : 1; }

 private:
  std::uint64_t warmup_;
};

class Step final : public Schedule {
 public:
  Step(std::uint64_t every, double gamma) : every_(every), gamma_(gamma) {}
  double factor(std::uint64_t step) const override {
    const std::uint64_t times = step / every_;
    return std::pow(gamma_, static_cast<double>(times));
  }

 private:
  std::uint64_t every_;
  double gamma_;
};

class Cosine final : public Schedule {
 public:
  Cosine(std::uint64_t warmup, std::uint64_t total, double min) : warmup_(warmup), total_(total), min_(min) {}
  double factor(std::uint64_t step) const override {
    if (step < warmup_) return warm(step, warmup_);
    if (step >= total_) return min_;
    const double progress = static_cast<double>(step - warmup_) / static_cast<double>(total_ - warmup_);
    return min_ + (1 - min_) * (1 + std::cos(std::numbers::pi * progress)) / 2;
  }

 private:
  std::uint64_t warmup_;
  std::uint64_t total_;
  double min_;
};

}  // namespace

std::unique_ptr<Schedule> make_schedule(const Spec& spec, std::uint64_t total_steps) {
  if (spec.name() == "constant") {
    spec.allow_only({"warmup"});
    return std::make_unique<Constant>(spec.count("warmup", 0));
  }
  if (spec.name() == "step") {
    spec.allow_only({"every", "gamma"});
    if (spec.string("every", "").empty())
      fail(ErrorKind::usage, "{}: 'step' needs every=N, as in step:every=1000,gamma=0.1", spec.flag());
    const double gamma = spec.number("gamma", 0.1);
    if (!(gamma > 0 && std::isfinite(gamma)))
      fail(ErrorKind::usage, "{} step:gamma: expected a number > 0, got {}", spec.flag(), gamma);
    return std::make_unique<Step>(spec.positive("every", 1), gamma);
  }
  if (spec.name() == "cosine") {
    spec.allow_only({"warmup", "min"});
    const double min = spec.number("min", 0);
    if (!(min >= 0 && min <= 1))
      fail(ErrorKind::usage, "{} cosine:min: expected a fraction of the rate, 0 to 1, got {}", spec.flag(), min);
    const std::uint64_t warmup = spec.count("warmup", 0);
    if (warmup > total_steps)
      fail(ErrorKind::usage, "{} cosine:warmup: {} steps are more than the run's {}", spec.flag(), warmup, total_steps);
    return std::make_unique<Cosine>(warmup, total_steps, min);
  }
  fail(ErrorKind::usage, "{}: unknown name '{}'; known: constant, cosine, step", spec.flag(), spec.name());
}

}  // namespace psring::optim
