#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>
#include <psring/tests/support/model_runner.h>
#include <psring/tests/support/shm_groups.h>
#include <psring/worker/model/check_gradients.h>
#include <psring/worker/model/gpt.h>
#include <psring/worker/model/layers/linear.h>
#include <psring/worker/model/loss.h>
#include <psring/worker/model/mlp.h>
#include <psring/worker/model/parallel/cross_entropy.h>
#include <psring/worker/model/parallel/tensor_part.h>

using namespace psring;
using namespace psring::worker;

namespace {

Model make(const std::string& text, const TensorPart& part) {
  const Spec spec = Spec::parse("--model", text);
  if (spec.name() == "gpt") return make_gpt(spec, part);
  if (spec.name() == "mse-mlp") return make_mse_mlp(spec, part);
  if (spec.name() == "gelu-mlp") return make_gelu_mlp(spec, part);
  return make_mlp(spec, part);
}

Model make_whole(const std::string& text) {
  const Spec spec = Spec::parse("--model", text);
  if (spec.name() == "gpt") return make_gpt(spec);
  if (spec.name() == "mse-mlp") return make_mse_mlp(spec);
  if (spec.name() == "gelu-mlp") return make_gelu_mlp(spec);
  return make_mlp(spec);
}

/// Runs each rank of a tensor group in a thread, and returns their results by rank. Throws what a rank threw first.
template <class T>
std::vector<T> on_ranks(std::size_t ranks, const std::function<T(const TensorPart&)>& run) {
  ring::GroupOptions options;
  options.op_timeout = from_seconds(60);
  const auto groups = ring::make_shm_groups(ranks, ring::kShmArenaBytes, options);
  const SystemClock clock;
  std::vector<T> results(ranks);
  std::vector<std::exception_ptr> errors(ranks);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        try {
          const TensorPart part(rank, ranks);
          MemoryLedger ledger;
          part.connect(*groups[rank], clock, Buffer(4096, Category::communication, ledger, groups[rank]->arena()));
          results[rank] = run(part);
        } catch (...) {
          errors[rank] = std::current_exception();
        }
      });
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return results;
}

constexpr std::size_t kSamples = 3;
constexpr int kSteps = 5;

void draw_samples(test::ModelRunner& runner, const Model& model) {
  if (model.tokens)
    runner.randomise_tokens(model.classes, 11);
  else
    runner.randomise(model.classes, 11);
}

/// A few steps of gradient descent: the losses, and the first gradient and the last parameters by tensor.
struct Trained {
  std::vector<double> losses;
  std::vector<std::uint64_t> correct;
  std::vector<TensorSpec> tensors;
  std::vector<float> gradient;
  std::vector<float> parameters;
  double evaluated = 0;
};

Trained train(const Model& model) {
  test::ModelRunner runner(model, kSamples);
  draw_samples(runner, model);
  Trained result;
  result.tensors = runner.tensors();
  const float scale = 1.0F / static_cast<float>(kSamples * model.rows_per_sample);
  for (int step = 0; step < kSteps; ++step) {
    const LossResult loss = runner.train(0, kSamples, scale, true);
    result.losses.push_back(loss.loss_sum);
    result.correct.push_back(loss.correct);
    if (step == 0) result.gradient = runner.gradient();
    runner.descend(-0.1F);
  }
  result.parameters = runner.parameters();
  result.evaluated = runner.evaluate(0, kSamples).loss_sum;
  return result;
}

/// Puts the ranks' slices together, as a model in one process has them. Ranks that hold the same elements must have the
/// same bits.
std::vector<float> joined(const std::vector<Trained>& ranks, const std::vector<TensorSpec>& whole,
                          std::vector<float> Trained::*values) {
  std::vector<float> all;
  std::vector<std::size_t> begins(ranks.size(), 0);
  for (std::size_t t = 0; t < whole.size(); ++t) {
    const std::size_t elements = whole[t].elements();
    std::vector<float> tensor(elements);
    std::vector<int> written(elements, 0);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const TensorSpec& spec = ranks[rank].tensors[t];
      REQUIRE(spec.name == whole[t].name);
      REQUIRE(spec.whole_shape() == whole[t].shape);
      for (const Run& run : runs_of(spec, {0, spec.elements()}))
        for (std::size_t i = 0; i < run.size; ++i) {
          const float value = (ranks[rank].*values)[begins[rank] + run.begin + i];
          float& place = tensor.at(run.whole_begin + i);
          if (written[run.whole_begin + i]++ > 0 && std::memcmp(&place, &value, sizeof value) != 0)
            FAIL(spec.name << ": rank " << rank << " has " << value << " in place of " << place);
          place = value;
        }
      begins[rank] += spec.elements();
    }
    for (const int times : written) REQUIRE(times > 0);
    all.insert(all.end(), tensor.begin(), tensor.end());
  }
  return all;
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

const char* const kModels[] = {"gpt:layers=2,dim=16,heads=4,context=5,vocab=11",
                               "gpt:layers=1,dim=8,heads=4,context=7,vocab=4",
                               "mlp:9-8-7",
                               "mlp:9-13-8-6",
                               "mlp:5-4",
                               "mlp:9-8-6-5-3",
                               "mse-mlp:6-9-3",
                               "gelu-mlp:dim=7,layers=3",
                               "gelu-mlp:dim=8,layers=2"};

}  // namespace

TEST_CASE("parts of a model together compute what the whole model does") {
  const std::string text = GENERATE(from_range(std::begin(kModels), std::end(kModels)));
  const std::size_t ranks = GENERATE(1, 2, 4);
  INFO(text << " on " << ranks);
  const Model model = make_whole(text);
  const Trained whole = train(model);
  const auto parts = on_ranks<Trained>(ranks, [&](const TensorPart& part) { return train(make(text, part)); });
  for (const Trained& part : parts) {
    CHECK(part.losses == parts[0].losses);
    CHECK(part.correct == whole.correct);
    for (int step = 0; step < kSteps; ++step)
      CHECK(part.losses[static_cast<std::size_t>(step)] ==
            Approx(whole.losses[static_cast<std::size_t>(step)]).epsilon(1e-5));
    CHECK(part.evaluated == Approx(whole.evaluated).epsilon(1e-5));
  }
  const auto gradient = joined(parts, whole.tensors, &Trained::gradient);
  const auto parameters = joined(parts, whole.tensors, &Trained::parameters);
  CHECK(relative_error(gradient, whole.gradient) < 1e-5);
  CHECK(relative_error(parameters, whole.parameters) < 1e-5);
  if (ranks > 1) return;
  CHECK(parts[0].losses == whole.losses);
  CHECK(gradient == whole.gradient);
  CHECK(parameters == whole.parameters);
}

TEST_CASE("a rerun of the parts has the same bits") {
  const std::string text = kModels[0];
  const auto run = [&] {
    return on_ranks<Trained>(4, [&](const TensorPart& part) { return train(make(text, part)); });
  };
  const auto first = run();
  const auto again = run();
  for (std::size_t rank = 0; rank < first.size(); ++rank) {
    CHECK(first[rank].losses == again[rank].losses);
    CHECK(first[rank].parameters == again[rank].parameters);
  }
}

TEST_CASE("parts start with the numbers of the whole model") {
  const std::string text = kModels[0];
  const auto start = [](const Model& model) {
    test::ModelRunner runner(model, 1);
    return Trained{.tensors = runner.tensors(), .parameters = runner.parameters()};
  };
  const Trained whole = start(make_whole(text));
  for (const std::size_t ranks : {2, 4}) {
    std::vector<Trained> parts;
    for (std::size_t rank = 0; rank < ranks; ++rank) parts.push_back(start(make(text, {rank, ranks})));
    CHECK(joined(parts, whole.tensors, &Trained::parameters) == whole.parameters);
    for (const Trained& part : parts) CHECK(part.parameters.size() < whole.parameters.size());
  }
}

TEST_CASE("the gradients of parts are those of finite differences") {
  const std::size_t ranks = GENERATE(1, 2, 4);
  // All ranks compute each loss. A rank's own elements move while the other ranks hold still; an element that all ranks
  // have moves at all of them.
  const std::string text = "gpt:layers=1,dim=12,heads=4,context=5,vocab=11";
  const auto worst = on_ranks<double>(ranks, [&](const TensorPart& part) {
    const Model model = make(text, part);
    test::ModelRunner runner(model, kSamples);
    draw_samples(runner, model);
    runner.train(0, kSamples, 1, true);
    const std::vector<float> gradient = runner.gradient();
    const std::vector<TensorSpec> tensors = runner.tensors();
    double norm = 0;
    for (const float g : gradient) norm = std::max(norm, std::abs(static_cast<double>(g)));
    double error = 0;
    std::size_t begin = 0;
    for (const TensorSpec& tensor : tensors) {
      for (std::size_t mover = 0; mover < part.size(); ++mover) {
        // Ranks agree on how many elements they try.
        for (std::size_t i = 0; i < 6; ++i) {
          const bool moves = !tensor.slice || mover == part.rank();
          const std::size_t index = begin + i * 7 % tensor.elements();
          const auto slope_over = [&](float step) {
            const float own = moves ? step : 0.0F;
            const double above = runner.loss_at(index, own);
            return (above - runner.loss_at(index, -own)) / (2 * static_cast<double>(step));
          };
          const double wide = slope_over(8e-3F);
          const double slope = (4 * slope_over(4e-3F) - wide) / 3;  // without the cubic term
          if (moves) error = std::max(error, std::abs(slope - static_cast<double>(gradient[index])) / norm);
        }
      }
      begin += tensor.elements();
    }
    return error;
  });
  for (const double error : worst) CHECK(error < 1e-3);
}

TEST_CASE("a cut linear layer passes the check of gradients") {
  for (const auto cut : {Linear::Cut::outputs, Linear::Cut::inputs})
    for (const auto activation : {Linear::Activation::none, Linear::Activation::relu}) {
      const Linear layer("l", 6, 5, {.activation = activation, .cut = cut, .part = TensorPart(0, 1)});
      CHECK_NOTHROW(check_gradients(layer, {4, 6}));
    }
}

TEST_CASE("no rank has all logits, and the loss is that of all") {
  const std::size_t classes = 13;
  const std::size_t rows = 6;
  const CounterRng rng({.seed = 3});
  std::vector<float> y(rows * classes);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = 4 * rng.normal(i);
  y[classes * 1 + 2] = y[classes * 1 + 9] = 50;  // two are the largest, and the first of them is right
  y[classes * 4 + 3] = 90;                       // its exponential overflows unless the largest is subtracted
  const std::vector<std::int32_t> targets{0, 2, 12, 9, 3, 6};
  std::vector<std::int32_t> second = targets;
  second[1] = 9;  // the second of them is wrong
  for (const auto& list : {targets, second}) {
    std::vector<float> dy(y.size());
    const LossResult whole =
        make_cross_entropy()->evaluate({y.data(), rows, classes}, list, 0.5F, {dy.data(), rows, classes});
    for (const std::size_t ranks : {2, 3, 5, 13}) {
      const auto error = on_ranks<double>(ranks, [&](const TensorPart& part) {
        const Range columns = part.of(classes);
        std::vector<float> own, d(rows * columns.size());
        for (std::size_t i = 0; i < rows; ++i)
          own.insert(own.end(), y.begin() + static_cast<std::ptrdiff_t>(i * classes + columns.begin),
                     y.begin() + static_cast<std::ptrdiff_t>(i * classes + columns.end));
        const auto loss = make_parallel_cross_entropy(classes, part);
        const LossResult result =
            loss->evaluate({own.data(), rows, columns.size()}, list, 0.5F, {d.data(), rows, columns.size()});
        double most = std::abs(result.loss_sum - whole.loss_sum) / whole.loss_sum;
        if (result.correct != whole.correct || result.rows != whole.rows) return 1.0;
        for (std::size_t i = 0; i < rows; ++i)
          for (std::size_t j = 0; j < columns.size(); ++j)
            most = std::max(most, std::abs(static_cast<double>(d[i * columns.size() + j]) -
                                           static_cast<double>(dy[i * classes + columns.begin + j])));
        const LossResult again = loss->evaluate({own.data(), rows, columns.size()}, list, 0, {});
        return again.loss_sum == result.loss_sum ? most : 1.0;
      });
      for (const double each : error) CHECK(each < 1e-6);
    }
  }
}

TEST_CASE("a target outside of all parts is refused") {
  const auto thrown = [] {
    on_ranks<int>(2, [](const TensorPart& part) {
      const std::vector<float> y(part.of(5).size());
      make_parallel_cross_entropy(5, part)->evaluate({y.data(), 1, y.size()}, std::vector<std::int32_t>{5}, 1, {});
      return 0;
    });
  };
  CHECK_THROWS_WITH(thrown(), Catch::Contains("target 5 of row 0 is not one of the model's 5 classes"));
}

TEST_CASE("models that cannot be divided are refused in one line") {
  const auto refused = [](const std::string& text, std::size_t ranks) -> std::string {
    try {
      make(text, {0, ranks});
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      return error.what();
    }
    return "";
  };
  CHECK(
      refused("gpt:layers=1,dim=12,heads=3,context=4,vocab=9", 2) ==
      "--tensor 2: --model gpt:layers=1,dim=12,heads=3,context=4,vocab=9: 3 heads of attention are not divisible by 2");
  CHECK(refused("gpt:layers=1,dim=12,heads=4,context=4,vocab=3", 4) ==
        "--tensor 4: --model gpt:layers=1,dim=12,heads=4,context=4,vocab=3: a vocabulary of 3 has no token for each "
        "part");
  CHECK(refused("mlp:9-3-7", 4) == "--tensor 4: --model mlp:9-3-7: a width of 3 has no column for each part");
  CHECK(refused("mlp:9-7-8-3-7", 4) == "--tensor 4: --model mlp:9-7-8-3-7: a width of 3 has no column for each part");
  CHECK(refused("mlp:9-4-3", 4).empty());
}

TEST_CASE("layers say which vectors they sum") {
  const std::string text = "gpt:layers=2,dim=16,heads=4,context=5,vocab=11";
  const std::size_t rows = 3 * 5;
  for (const std::size_t ranks : {1, 2}) {
    const Model model = make(text, {0, ranks});
    LayerSums sums;
    for (std::size_t i = 0; i < model.layers.size(); ++i) {
      const Shape in = i == 0 ? Shape{3, 5} : Shape{rows, 16};
      const LayerSums each = model.layers[i]->tensor_sums(in, {});
      sums.forward += each.forward;
      sums.backward += each.backward;
    }
    CHECK(sums.forward == (ranks == 1 ? 0 : (1 + 2 * 2) * rows * 16));   // embedding, and two halves of each block
    CHECK(sums.backward == (ranks == 1 ? 0 : (2 * 2 + 1) * rows * 16));  // two halves of each block, and the head
    const LossExchange loss = model.loss->tensor_sums(rows);
    CHECK(loss.largest_f32 == (ranks == 1 ? 0 : rows));
    CHECK(loss.sum_f64 == (ranks == 1 ? 0 : 3 * rows));
  }
}

TEST_CASE("a layer without a group computes nothing") {
  const TensorPart part(1, 2);
  std::vector<float> values(3);
  CHECK_THROWS_WITH(part.sum(std::span(values)), Catch::Contains("tensor part 1 of 2 computes without a group"));
}

TEST_CASE("a part draws the dropout of the whole model") {
  const std::string text = "mlp:9-d0.3-13-d0.5-8-d0.4-6";
  const Model model = make_whole(text);
  const Trained whole = train(model);
  for (const std::size_t ranks : {1, 2, 4}) {
    const auto parts = on_ranks<Trained>(ranks, [&](const TensorPart& part) { return train(make(text, part)); });
    for (std::size_t step = 0; step < whole.losses.size(); ++step)
      CHECK(parts[0].losses[step] == Approx(whole.losses[step]).epsilon(1e-5));
    CHECK(relative_error(joined(parts, whole.tensors, &Trained::gradient), whole.gradient) < 1e-5);
  }
}
