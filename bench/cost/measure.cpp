#include <algorithm>
#include <chrono>
#include <cstring>

#include <psring/bench/cost/measure.h>
#include <psring/bench/cost/workload.h>
#include <psring/bench/model_step.h>

namespace psring::bench {

double median_seconds(const std::function<void()>& call, Nanoseconds at_least) {
  const SystemClock clock;
  std::vector<double> times;
  const Moment end = clock.now() + at_least;
  do {
    const Moment begin = clock.now();
    call();
    times.push_back(seconds(clock.now() - begin));
  } while (clock.now() < end || times.size() < 3);
  const auto median = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), median, times.end());
  return *median;
}

void measure_layers(const worker::Model& model, std::size_t batch, Measured& into) {
  constexpr std::size_t kSteps = 7;
  ModelStep step(model, batch);
  const SystemClock clock;
  const auto time_of = [&](const std::function<void()>& call) {
    const Moment begin = clock.now();
    call();
    return seconds(clock.now() - begin);
  };
  std::vector<std::vector<double>> forward(step.layers());
  std::vector<std::vector<double>> backward(step.layers());
  step.run();
  for (std::size_t i = 0; i < kSteps; ++i) {
    step.begin();
    for (std::size_t layer = 0; layer < step.layers(); ++layer)
      forward[layer].push_back(time_of([&] { step.forward(layer); }));
    step.loss();
    for (std::size_t layer = step.layers(); layer-- > 0;)
      backward[layer].push_back(time_of([&] { step.backward(layer); }));
  }
  const auto median = [](std::vector<double>& times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  };
  worker::Shape shape{batch, model.input_cols};
  for (std::size_t i = 0; i < step.layers(); ++i) {
    const worker::Layer& layer = *model.layers[i];
    const worker::Shape out = layer.output(shape);
    const double first = layer.flops(shape, {.dx = false, .gradients = false});
    LayerPass pass{kind_of(layer), false, first, static_cast<double>(shape.elements() + out.elements())};
    into[pass.line(DType::f32)].push_back({pass.size(), median(forward[i])});
    pass.backward = true;
    pass.flops = layer.flops(shape, {.dx = i > 0}) - first;
    into[pass.line(DType::f32)].push_back({pass.size(), median(backward[i])});
    shape = out;
  }
}

void measure_updates(Measured& into) {
  for (const std::size_t elements :
       {std::size_t{1} << 12, std::size_t{1} << 15, std::size_t{1} << 18, std::size_t{1} << 20, std::size_t{1} << 22}) {
    std::vector<float> sum(elements, 0.0F);
    const std::vector<float> gradient(elements, 1e-9F);
    const double time = median_seconds(
        [&] {
          for (std::size_t i = 0; i < elements; ++i) sum[i] += gradient[i];
        },
        std::chrono::milliseconds(30));
    into["server.work"].push_back({12.0 * static_cast<double>(elements), time});  // two are read, one is written
  }
}

void measure_copies(Measured& into) {
  for (std::size_t bytes = std::size_t{1} << 12; bytes <= std::size_t{1} << 26; bytes *= 4) {
    const std::vector<char> from(bytes, 1);
    std::vector<char> to(bytes, 0);
    const double time =
        median_seconds([&] { std::memcpy(to.data(), from.data(), bytes); }, std::chrono::milliseconds(20));
    into["memory.copy"].push_back({static_cast<double>(bytes), time});
  }
}

}  // namespace psring::bench
