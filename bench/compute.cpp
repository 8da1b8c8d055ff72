#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include <psring/bench/compute.h>
#include <psring/bench/model_step.h>
#include <psring/common/base/median.h>
#include <psring/common/base/rng.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/kernels.h>
#include <psring/common/device/onednn.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/graph.h>
#include <psring/worker/model/host_network.h>

namespace psring::bench {
namespace {

using dnnl::memory;

/// Seconds of one call: the thread's processor time, and the elapsed time.
struct Seconds {
  double processor = 0;
  double wall = 0;
};

double now(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

Seconds seconds_of(const std::function<void()>& work, std::size_t times) {
  const Seconds start{now(CLOCK_THREAD_CPUTIME_ID), now(CLOCK_MONOTONIC)};
  for (std::size_t i = 0; i < times; ++i) work();
  const auto n = static_cast<double>(times);
  return {(now(CLOCK_THREAD_CPUTIME_ID) - start.processor) / n, (now(CLOCK_MONOTONIC) - start.wall) / n};
}

double median_of(const std::vector<Seconds>& times, double Seconds::*figure) {
  std::vector<double> values;
  for (const Seconds& time : times) values.push_back(time.*figure);
  return median(std::move(values));
}

/// A matrix product that a step computes `count` times, run by oneDNN alone in several ways.
class Product {
 public:
  Product(const Gemm& shape, std::size_t count, const dnnl::engine& engine)
      : shape_(shape), count_(static_cast<double>(count)), engine_(engine), stream_(engine) {
    const auto noise = [](std::size_t n, std::uint32_t stream) {
      const CounterRng rng({.seed = 11, .tensor = stream});
      std::vector<float> values(n);
      for (std::size_t i = 0; i < n; ++i) values[i] = rng.uniform(i) - 0.5F;
      return values;
    };
    a_ = noise(shape.m * shape.k, 1);
    b_ = noise(shape.k * shape.n, 2);
    c_.resize(shape.m * shape.n);
    ways_.emplace_back([this] { sgemm(); });
    for (const auto& [pack_a, pack_b] : {std::pair{false, false}, {false, true}, {true, true}})
      ways_.push_back(matmul(pack_a, pack_b));
    times_.resize(ways_.size());
    repeat_ = static_cast<std::size_t>(std::ceil(2e-3 / seconds_of(ways_[1], 3).processor));
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  double flops() const {
    return count_ * 2.0 * static_cast<double>(shape_.m) * static_cast<double>(shape_.n) * static_cast<double>(shape_.k);
  }
  void measure() {
    for (std::size_t way = 0; way < ways_.size(); ++way) times_[way].push_back(seconds_of(ways_[way], repeat_));
  }
  double best_seconds(double Seconds::*figure) const {
    double best = INFINITY;
    for (const auto& times : times_) best = std::min(best, median_of(times, figure));
    return count_ * best;
  }

 private:
  void sgemm() {
    const Gemm& s = shape_;
    const auto dim = [](std::size_t value) { return static_cast<dnnl_dim_t>(value); };
    dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', dim(s.m), dim(s.n), dim(s.k), 1, a_.data(),
               dim(s.transpose_a ? s.m : s.k), b_.data(), dim(s.transpose_b ? s.k : s.n), 0, c_.data(), dim(s.n));
  }

  static memory::desc plain(std::size_t rows, std::size_t cols, bool transposed) {
    const auto r = static_cast<memory::dim>(rows);
    const auto c = static_cast<memory::dim>(cols);
    return {{r, c}, memory::data_type::f32, transposed ? memory::dims{1, r} : memory::dims{c, 1}};
  }

  std::function<void()> matmul(bool pack_a, bool pack_b) {
    const auto a = plain(shape_.m, shape_.k, shape_.transpose_a);
    const auto b = plain(shape_.k, shape_.n, shape_.transpose_b);
    const auto c = plain(shape_.m, shape_.n, false);
    const auto any = [](std::size_t rows, std::size_t cols) {
      const memory::dims sizes{static_cast<memory::dim>(rows), static_cast<memory::dim>(cols)};
      return memory::desc(sizes, memory::data_type::f32, memory::format_tag::any);
    };
    const auto chosen = describe_primitive<dnnl::matmul>(
        engine_, dnnl::primitive_attr(), pack_a ? any(shape_.m, shape_.k) : a, pack_b ? any(shape_.k, shape_.n) : b, c);
    const auto packed = [&](const memory::desc& from, const memory::desc& to, std::vector<float>& values) {
      memory source(from, engine_, values.data());
      if (from == to) return source;
      memory target(to, engine_);
      dnnl::reorder(source, target).execute(stream_, source, target);
      return target;
    };
    const std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, packed(a, chosen.src_desc(), a_)},
                                                    {DNNL_ARG_WEIGHTS, packed(b, chosen.weights_desc(), b_)},
                                                    {DNNL_ARG_DST, memory(c, engine_, c_.data())}};
    return [primitive = dnnl::matmul(chosen), arguments, this] { primitive.execute(stream_, arguments); };
  }

  Gemm shape_;
  double count_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<float> a_, b_, c_;
  std::vector<std::function<void()>> ways_;
  std::vector<std::vector<Seconds>> times_;  ///< by way
  std::size_t repeat_ = 1;
};

std::vector<Gemm> products_of(const worker::Model& model, std::size_t batch) {
  std::vector<Gemm> list;
  const std::vector<worker::Shape> shapes = worker::activation_shapes(model, batch);
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    model.layers[i]->gemms(shapes[worker::sources_of(model, i).front()], {.dx = i > 0}, list);
  }
  if (list.empty()) fail(ErrorKind::usage, "model {} has no matrix products to measure", model.name);
  return list;
}

/// Returns each distinct product with its number of occurrences: attention computes the same products for each sample,
/// head and layer.
std::vector<std::pair<Gemm, std::size_t>> counted(const std::vector<Gemm>& all) {
  const auto key = [](const Gemm& g) { return std::tuple(g.m, g.n, g.k, g.transpose_a, g.transpose_b); };
  std::vector<std::pair<Gemm, std::size_t>> distinct;
  for (const Gemm& gemm : all) {
    const auto at =
        std::find_if(distinct.begin(), distinct.end(), [&](const auto& d) { return key(d.first) == key(gemm); });
    if (at == distinct.end()) {
      distinct.emplace_back(gemm, 1);
    } else {
      ++at->second;
    }
  }
  return distinct;
}

}  // namespace

ComputeRates measure_compute(const worker::Model& model, std::size_t batch, std::size_t rounds) {
  check(rounds > 0, "a benchmark needs a round");
  omp_set_num_threads(1);  // for this thread's oneDNN primitives; psring's kernels set their own number of threads
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  std::vector<std::unique_ptr<Product>> products;
  for (const auto& [gemm, times] : counted(products_of(model, batch)))
    products.push_back(std::make_unique<Product>(gemm, times, engine));
  ModelStep step(model, batch);
  const double first = step.run();
  if (!std::isfinite(first)) fail(ErrorKind::check_failed, "model {}: the loss is {} at the start", model.name, first);

  const auto run = [&] { step.run(); };
  const auto repeat = static_cast<std::size_t>(std::ceil(20e-3 / seconds_of(run, 2).processor));
  std::vector<Seconds> times;
  for (std::size_t round = 0; round < rounds; ++round) {
    times.push_back(seconds_of(run, repeat));
    for (const auto& product : products) product->measure();
  }
  if (step.run() != first) fail(ErrorKind::check_failed, "model {}: the same step gave another loss", model.name);

  double flops = 0;
  Seconds sum;
  for (const auto& product : products) {
    flops += product->flops();
    sum.processor += product->best_seconds(&Seconds::processor);
    sum.wall += product->best_seconds(&Seconds::wall);
  }
  const Seconds middle{median_of(times, &Seconds::processor), median_of(times, &Seconds::wall)};
  const auto [fastest, slowest] = std::minmax_element(
      times.begin(), times.end(), [](const Seconds& a, const Seconds& b) { return a.processor < b.processor; });
  return {.step = step.flops(batch) / middle.processor * 1e-9,
          .ceiling = flops / sum.processor * 1e-9,
          .wall_step = step.flops(batch) / middle.wall * 1e-9,
          .wall_ceiling = flops / sum.wall * 1e-9,
          .spread = (slowest->processor - fastest->processor) / middle.processor,
          .rounds = rounds,
          .samples_per_second = static_cast<double>(batch) / middle.wall};
}

}  // namespace psring::bench
