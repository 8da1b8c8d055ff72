#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include <psring/common/base/rng.h>
#include <psring/common/base/text/error.h>
#include <psring/worker/data/sampler.h>
#include <psring/worker/data/synthetic.h>

namespace psring::worker {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 30;
constexpr std::size_t kMostClasses = std::size_t{1} << 24;

/// Independent random streams: values of CounterRng's `tensor`.
enum Part : std::uint32_t { kInputs = 0, kTeacher = 1, kSuccessors = 2 };

CounterRng source(const SyntheticSpec& spec, Part part, std::size_t sample = 0) {
  return CounterRng(
      {.seed = spec.seed, .purpose = Purpose::synthetic, .tensor = part, .step = static_cast<std::uint32_t>(sample)});
}

std::size_t targets_of(const SyntheticSpec& spec) {
  switch (spec.kind) {
    case SyntheticSpec::Kind::classes:
      return 1;
    case SyntheticSpec::Kind::tokens:
      return spec.cols;
    case SyntheticSpec::Kind::values:
    case SyntheticSpec::Kind::inputs:
      return 0;
  }
  return 0;
}

std::size_t classes_of(const SyntheticSpec& spec) {
  const bool has = spec.kind == SyntheticSpec::Kind::classes || spec.kind == SyntheticSpec::Kind::tokens;
  return has ? spec.classes : 0;
}

class SyntheticDataset final : public Dataset {
 public:
  SyntheticDataset(const SyntheticSpec& spec, std::size_t samples)
      : samples_(samples),
        cols_(spec.cols),
        targets_each_(targets_of(spec)),
        classes_(classes_of(spec)),
        values_each_(spec.kind == SyntheticSpec::Kind::values ? spec.classes : 0),
        tokens_(spec.kind == SyntheticSpec::Kind::tokens),
        inputs_(samples * cols_),
        targets_(samples * targets_each_),
        values_(samples * values_each_) {}

  std::size_t size() const override { return samples_; }
  std::size_t input_cols() const override { return cols_; }
  std::size_t targets_per_sample() const override { return targets_each_; }
  std::size_t classes() const override { return classes_; }
  bool tokens() const override { return tokens_; }
  std::size_t target_values() const override { return values_each_; }

  void read(std::size_t index, const SampleMemory& to) const override {
    check(index < samples_ && to.input.size() == cols_ && to.classes.size() == targets_each_ &&
              to.values.size() == values_each_,
          "read of sample {} of {}", index, samples_);
    std::copy_n(inputs_.begin() + index * cols_, cols_, to.input.begin());
    std::copy_n(targets_.begin() + index * targets_each_, targets_each_, to.classes.begin());
    std::copy_n(values_.begin() + index * values_each_, values_each_, to.values.begin());
  }

  SampleMemory memory(std::size_t index) {
    return {std::span(inputs_).subspan(index * cols_, cols_),
            std::span(targets_).subspan(index * targets_each_, targets_each_),
            std::span(values_).subspan(index * values_each_, values_each_)};
  }

 private:
  std::size_t samples_;
  std::size_t cols_;
  std::size_t targets_each_;
  std::size_t classes_;
  std::size_t values_each_;
  bool tokens_;
  std::vector<float> inputs_;
  std::vector<std::int32_t> targets_;
  std::vector<float> values_;
};

/// Generates samples. `sample` numbers the samples of both splits.
class Generator {
 public:
  explicit Generator(const SyntheticSpec& spec) : spec_(spec) {
    if (spec.kind == SyntheticSpec::Kind::classes || spec.kind == SyntheticSpec::Kind::values) {
      const CounterRng rng = source(spec, kTeacher);
      teacher_.resize(spec.cols * spec.classes);
      for (std::size_t i = 0; i < teacher_.size(); ++i) teacher_[i] = rng.normal(i);
      scores_.resize(spec.classes);
    } else if (spec.kind == SyntheticSpec::Kind::tokens) {
      successors_ = permutation(spec.classes, source(spec, kSuccessors));
    }
  }

  void make(std::size_t sample, const SampleMemory& to) {
    const CounterRng rng = source(spec_, kInputs, sample);
    const std::span<float> input = to.input;
    const std::span<std::int32_t> targets = to.classes;
    switch (spec_.kind) {
      case SyntheticSpec::Kind::classes:
        for (std::size_t j = 0; j < input.size(); ++j) input[j] = 2.0F * rng.uniform(j) - 1.0F;
        score(input);
        targets[0] = static_cast<std::int32_t>(std::max_element(scores_.begin(), scores_.end()) - scores_.begin());
        return;
      case SyntheticSpec::Kind::values:
        for (std::size_t j = 0; j < input.size(); ++j) input[j] = 2.0F * rng.uniform(j) - 1.0F;
        score(input);
        for (std::size_t c = 0; c < scores_.size(); ++c)
          to.values[c] = std::sin(2 * scores_[c] / std::sqrt(static_cast<float>(input.size())));
        return;
      case SyntheticSpec::Kind::tokens:
        chain(rng, input, targets);
        return;
      case SyntheticSpec::Kind::inputs:
        for (std::size_t j = 0; j < input.size(); ++j) input[j] = rng.normal(j);
        return;
    }
  }

 private:
  void score(std::span<const float> input) {
    std::fill(scores_.begin(), scores_.end(), 0.0F);
    for (std::size_t j = 0; j < input.size(); ++j)
      for (std::size_t c = 0; c < scores_.size(); ++c) scores_[c] += input[j] * teacher_[j * scores_.size() + c];
  }

  void chain(const CounterRng& rng, std::span<float> input, std::span<std::int32_t> targets) const {
    // Takes the upper half of word times vocabulary: uniform enough, since the bias is below vocabulary / 2^32.
    const auto any = [&](std::uint32_t word) {
      return static_cast<std::uint32_t>(std::uint64_t{word} * successors_.size() >> 32);
    };
    std::uint32_t token = any(rng.bits(0));
    for (std::size_t j = 0; j < input.size(); ++j) {
      input[j] = static_cast<float>(token);
      const bool follows = rng.uniform(2 * j + 1) < 0.75F;
      token = follows ? successors_[token] : any(rng.bits(2 * j + 2));
      targets[j] = static_cast<std::int32_t>(token);
    }
  }

  SyntheticSpec spec_;
  std::vector<float> teacher_;             ///< [cols, classes]
  std::vector<float> scores_;              ///< [classes]
  std::vector<std::uint32_t> successors_;  ///< [vocabulary]
};

}  // namespace

DataSplit make_synthetic(const SyntheticSpec& spec) {
  const bool has_classes = spec.kind != SyntheticSpec::Kind::inputs;
  check(spec.samples > 0 && spec.cols > 0 && (!has_classes || spec.classes > 0),
        "synthetic data of {} samples, {} inputs, {} classes", spec.samples, spec.cols, spec.classes);
  if (has_classes && spec.classes > kMostClasses)
    fail(ErrorKind::usage, "synthetic data: {} classes, at most {} expected", spec.classes, kMostClasses);
  const std::size_t most = kMostBytes / sizeof(float);
  const std::size_t test_samples = std::max<std::size_t>(1, spec.samples / 10);
  if (spec.samples > most || spec.cols > most / (2 * (spec.samples + test_samples)) ||
      (spec.kind != SyntheticSpec::Kind::tokens && has_classes && spec.cols > most / spec.classes))
    fail(ErrorKind::usage, "synthetic data: {} samples of {} inputs, {} classes take more than {} MiB of memory",
         spec.samples, spec.cols, spec.classes, kMostBytes >> 20);

  Generator generator(spec);
  const auto draw = [&](std::size_t first, std::size_t count) {
    auto data = std::make_unique<SyntheticDataset>(spec, count);
    for (std::size_t i = 0; i < count; ++i) generator.make(first + i, data->memory(i));
    return data;
  };
  return {draw(0, spec.samples), draw(spec.samples, test_samples)};
}

}  // namespace psring::worker
