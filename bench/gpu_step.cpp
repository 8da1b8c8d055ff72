#include <algorithm>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/core.h>

#include <psring/bench/gpu_step.h>
#include <psring/bench/report.h>
#include <psring/bench/step_observer.h>
#include <psring/common/base/events/events.h>
#include <psring/common/base/rng.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/buffer.h>
#include <psring/common/device/device.h>
#include <psring/optim/codec/compression.h>
#include <psring/optim/device_applier.h>
#include <psring/worker/model/device/tensor_kernels.h>
#include <psring/worker/registries.h>
#include <psring/worker/training.h>

namespace psring::bench {
namespace {

using worker::AttentionShape;
using worker::LossSums;
using worker::Product;
using worker::Rows;
using worker::TensorKernels;
using worker::TokenRows;

// Calls before timing: then the kernel is launched as a graph, like a step's kernels.
constexpr std::size_t kWarmUp = 3;
constexpr std::size_t kLaunches = 20;

double total(std::initializer_list<ConstElements> operands) {
  double bytes = 0;
  for (const ConstElements& each : operands) bytes += static_cast<double>(each.size_bytes());
  return bytes;
}

double number(std::size_t value) { return static_cast<double>(value); }

/// Wraps a device's kernels: each call is waited for and timed on the device. The time of a launch into an empty queue
/// is subtracted; it is the minimum time for clearing one float.
class TimedKernels final : public TensorKernels {
 public:
  explicit TimedKernels(Device& device) : device_(device), kernels_(worker::make_tensor_kernels(device)) {
    MemoryLedger memory;
    Buffer one(sizeof(float), Category::communication, memory, device);
    const auto clear = [&] { device_.clear(one.elements(DType::f32)); };
    for (std::size_t i = 0; i < kWarmUp; ++i) launch_s_ = seconds_of(clear);
    for (std::size_t i = 0; i < kLaunches; ++i) launch_s_ = std::min(launch_s_, seconds_of(clear));
  }

  /// Times since the last `clear`, by kernel.
  const std::map<std::string, KernelTime>& times() const { return times_; }
  void clear() { times_.clear(); }

  void product(const Product& product) override {
    const Gemm& shape = product.shape;
    timed("product", total({product.a, product.b, product.out, product.added, product.kept}),
          2 * number(shape.m) * number(shape.n) * number(shape.k), [&] { kernels_->product(product); });
  }

  void layer_norm(Rows shape, ConstElements x, ConstElements weight, ConstElements bias, float* saved, Elements y,
                  bool again) override {
    timed("layer norm", total({x, y}), 0, [&] { kernels_->layer_norm(shape, x, weight, bias, saved, y, again); });
  }

  void layer_norm_backward(Rows shape, ConstElements x, ConstElements weight, const float* saved, ConstElements dy,
                           ConstElements residual, Elements dx, const NormGradients& gradients) override {
    timed("layer norm, backward", total({x, dy, residual, dx}), 0,
          [&] { kernels_->layer_norm_backward(shape, x, weight, saved, dy, residual, dx, gradients); });
  }

  /// Counts half of all pairs of positions: 2 products forward, 5 backward.
  void attention(const AttentionShape& shape, ConstElements qkv, Elements out, float* log_sums) override {
    const double products = 2 * number(shape.rows()) * number(shape.context) / 2 * number(shape.dim());
    timed("attention", total({qkv, out}), 2 * products, [&] { kernels_->attention(shape, qkv, out, log_sums); });
  }

  void attention_backward(const AttentionShape& shape, ConstElements qkv, ConstElements out, const float* log_sums,
                          ConstElements d_out, Elements d_qkv) override {
    const double products = 2 * number(shape.rows()) * number(shape.context) / 2 * number(shape.dim());
    timed("attention, backward", total({qkv, out, d_out, d_qkv}), 5 * products,
          [&] { kernels_->attention_backward(shape, qkv, out, log_sums, d_out, d_qkv); });
  }

  void embedding(Rows shape, std::size_t context, const std::int32_t* ids, ConstElements tokens, ConstElements places,
                 Elements y) override {
    timed("embedding", 3 * total({y}), 0, [&] { kernels_->embedding(shape, context, ids, tokens, places, y); });
  }

  void embedding_backward(Rows shape, std::size_t context, const TokenRows& tokens, ConstElements dy, Elements d_tokens,
                          float tokens_beta, Elements d_places, float places_beta) override {
    timed("embedding, backward", 2 * total({dy}) + total({d_tokens, d_places}), 0, [&] {
      kernels_->embedding_backward(shape, context, tokens, dy, d_tokens, tokens_beta, d_places, places_beta);
    });
  }

  void column_sums(Rows shape, ConstElements dy, float beta, Elements into) override {
    timed("column sums", total({dy, into}), 0, [&] { kernels_->column_sums(shape, dy, beta, into); });
  }

  void slope(Slope slope, ConstElements value, ConstElements dy, Elements dx) override {
    timed("slope", total({value, dy, dx}), 0, [&] { kernels_->slope(slope, value, dy, dx); });
  }

  void gelu(ConstElements x, Elements y) override {
    timed("gelu", total({x, y}), 0, [&] { kernels_->gelu(x, y); });
  }

  void loss(Rows shape, const std::int32_t* targets, float scale, Elements y, LossSums* sums) override {
    timed("loss", 2 * total({y}), 0, [&] { kernels_->loss(shape, targets, scale, y, sums); });
  }

 private:
  void timed(const char* name, double bytes, double flops, const auto& call) {
    const double seconds = seconds_of(call);
    KernelTime& time = times_[name];
    ++time.calls;
    time.seconds += std::max(0.0, seconds - launch_s_);
    time.bytes += bytes;
    time.flops += flops;
  }

  double seconds_of(const auto& call) {
    const Nanoseconds before = device_.stalled();
    {
      const Device::Stall around(device_);
      call();
    }
    device_.wait(device_.mark());
    return std::chrono::duration<double>(device_.stalled() - before).count();
  }

  Device& device_;
  const std::unique_ptr<TensorKernels> kernels_;
  double launch_s_ = 0;
  std::map<std::string, KernelTime> times_;
};

constexpr std::size_t kRounds = 7;

/// Returns the device's seconds per call, measured over many calls; the median over the rounds.
double seconds_of(Device& device, std::size_t calls, const std::function<void()>& call) {
  call();
  Samples samples;
  for (std::size_t round = 0; round < kRounds; ++round) {
    device.wait(device.mark());
    const Nanoseconds before = device.stalled();
    {
      const Device::Stall around(device);
      for (std::size_t i = 0; i < calls; ++i) call();
    }
    device.wait(device.mark());
    samples.values.push_back(std::chrono::duration<double>(device.stalled() - before).count() /
                             static_cast<double>(calls));
  }
  return samples.median();
}

/// Uniform in [least, least + 1).
std::vector<float> random_values(std::size_t size, std::uint64_t seed, float least) {
  std::vector<float> values(size);
  const CounterRng rng({.seed = seed});
  for (std::size_t i = 0; i < size; ++i) values[i] = least + rng.uniform(i);
  return values;
}

double copy_rate(Device& device, std::size_t elements) {
  MemoryLedger memory;
  Buffer from(elements * sizeof(float), Category::communication, memory, device);
  Buffer to(elements * sizeof(float), Category::communication, memory, device);
  const double seconds =
      seconds_of(device, 10, [&] { device.copy(ConstElements(from.elements(DType::f32)), to.elements(DType::f32)); });
  return 2 * static_cast<double>(from.size_bytes()) / seconds;
}

/// Uses random values: a product of zeros takes less power and is faster.
double matrix_rate(Device& device, std::size_t side, DType type) {
  MemoryLedger memory;
  const auto buffer = [&] { return Buffer(side * side * size_bytes(type), Category::communication, memory, device); };
  Buffer a = buffer();
  Buffer b = buffer();
  Buffer c = buffer();
  const std::vector<float> values = random_values(side * side, 11, -0.5F);
  std::vector<std::byte> bytes(a.size_bytes());
  const Elements host(bytes.data(), values.size(), type);
  narrow(values, host);
  for (Buffer* each : {&a, &b}) device.copy(ConstElements(host), each->elements(type));
  const auto kernels = worker::make_tensor_kernels(device);
  const double seconds = seconds_of(device, 10, [&] {
    kernels->product({.shape = {.m = side, .n = side, .k = side},
                      .a = a.elements(type),
                      .b = b.elements(type),
                      .out = c.elements(type)});
  });
  return 2 * static_cast<double>(side) * static_cast<double>(side) * static_cast<double>(side) / seconds;
}

/// Collects the kernels' times in the timed steps: after the warm-up steps, before the evaluation at the end.
class KernelObserver final : public ReportListener {
 public:
  KernelObserver(TimedKernels& kernels, const GpuStepOptions& options) : kernels_(kernels), options_(options) {}
  void on_step(const StepReport& report) override {
    if (report.step + 1 == options_.warm_up) kernels_.clear();
    if (report.step + 1 == options_.warm_up + options_.steps) times = kernels_.times();
  }
  void on_evaluation(const Evaluation&) override {}

  std::map<std::string, KernelTime> times;

 private:
  TimedKernels& kernels_;
  const GpuStepOptions& options_;
};

class Steps {
 public:
  Steps(const GpuStepOptions& options, Device& device) : device_(device) {
    worker::register_builtins(registries_);
    optim::register_builtin_optimizers(optimizers_);
    // Few samples, because a run ends with an evaluation.
    JobOptions job{.model = options.model,
                   .data = fmt::format("synthetic:samples={}", 4 * options.batch),
                   .workers = 1,
                   .global_batch = options.batch};
    job.strategy = "single";
    job.device = "cuda";
    job.precision = options.precision;
    job.optimizer = options.optimizer;
    job.lr = 1e-4;
    job.steps = options.warm_up + options.steps;
    job.seed = 7;
    setup_.emplace(job, registries_, optimizers_);
  }

  const worker::TrainSetup& setup() const { return *setup_; }

  void run(worker::TensorKernels* kernels, ReportListener& observer) {
    MemoryLedger memory;
    const SystemClock clock;
    Events events(clock);
    worker::Training training(*setup_, {}, {.memory = memory, .clock = clock, .events = events, .device = &device_},
                              {.kernels = kernels});
    events.listen(observer, Events::Wanted::reports);
    training.run();
  }

 private:
  Device& device_;
  worker::Registries registries_;
  optim::OptimizerRegistry optimizers_;
  std::optional<worker::TrainSetup> setup_;
};

/// Measures the update of all parameters at once. All operands are random, and positive like second moments: square
/// root and division of zeros take a different time.
KernelTime update_time(const worker::TrainSetup& setup, Device& device) {
  const Layout& layout = setup.layout();
  const std::size_t elements = layout.trained_elements();
  MemoryLedger memory;
  double bytes = 0;
  std::vector<Buffer> buffers;
  const std::vector<float> host = random_values(elements, 17, 0.25F);
  const auto values = [&](DType type, std::size_t passes) {
    buffers.emplace_back(elements * size_bytes(type), Category::optimizer, memory, device);
    bytes += static_cast<double>(passes * buffers.back().size_bytes());
    const Elements filled = buffers.back().elements(type);
    std::vector<std::byte> narrowed(filled.size_bytes());
    const Elements rounded(narrowed.data(), elements, type);
    narrow(host, rounded);
    copy(ConstElements(rounded), filled);
    return filled;
  };
  buffers.reserve(3 + optim::Optimizer::kMaxSlots);
  const optim::Optimizer& rule = *setup.optimizer().rule;
  const auto formula = rule.formula({1, 1e-4F, 1});
  if (!formula) return {};
  const bool narrow = layout.parameter_type != DType::f32;
  const Elements parameters = values(layout.parameter_type, narrow ? 1 : 2);
  optim::DeviceRange range{.parameters = parameters,
                           .gradient = values(layout.gradient_type, 1),
                           .master = narrow ? values(DType::f32, 2) : Elements(),
                           .out = parameters};
  for (std::size_t slot = 0; slot < rule.slots(); ++slot) range.slot[slot] = values(DType::f32, 2);
  const auto applier = optim::make_device_applier(device);
  return {1, seconds_of(device, 5, [&] { applier->apply(*formula, range); }), bytes, 0};
}

/// Measures the codecs on all gradients at once, with random values: the number of equal values affects top-k's time.
std::map<std::string, KernelTime> codec_times(std::size_t elements, Device& device) {
  MemoryLedger memory;
  Buffer values(elements * sizeof(float), Category::gradients, memory, device);
  copy(ConstElements(random_values(elements, 13, -0.5F)), values.elements(DType::f32));
  std::map<std::string, KernelTime> times;
  for (const char* name : {"bf16", "int8", "sign", "top-k", "random-k"}) {
    const auto codec = optim::make_device_codec(name, true, device);
    Buffer bytes(codec->bytes(elements), Category::communication, memory, device);
    Buffer read(values.size_bytes(), Category::communication, memory, device);
    const Elements coded = bytes.elements(DType::u8);
    const auto moved = static_cast<double>(values.size_bytes() + bytes.size_bytes());
    times[fmt::format("{}, encode", name)] = {
        1, seconds_of(device, 3, [&] { codec->encode(values.elements(DType::f32), {}, coded); }), moved, 0};
    times[fmt::format("{}, decode", name)] = {
        1, seconds_of(device, 3, [&] { codec->decode(coded, {}, read.elements(DType::f32)); }), moved, 0};
  }
  return times;
}

}  // namespace

GpuStep measure_gpu_step(const GpuStepOptions& options, Device& device, std::size_t elements) {
  GpuStep step{.device = device.name()};
  const DType type = parse_dtype("--precision", options.precision);
  // Each of the two vectors takes a quarter of the memory.
  const std::size_t fit = device.memory().free_bytes / 4 / sizeof(float);
  step.copy_rate = copy_rate(device, elements != 0 ? elements : std::min(std::size_t{1} << 28, fit));
  step.matrix_rate = matrix_rate(device, elements != 0 ? elements : 8192, type);
  Steps steps(options, device);
  StepObserver whole(options.warm_up);
  steps.run(nullptr, whole);
  step.step_s = whole.steps.median();
  step.spread = whole.steps.spread();
  step.samples_per_s = static_cast<double>(options.batch) / step.step_s;
  if (steps.setup().model().tokens)
    step.tokens_per_s = step.samples_per_s * static_cast<double>(steps.setup().model().rows_per_sample);
  StepObserver one_by_one(options.warm_up);
  device.use_graphs(false);
  steps.run(nullptr, one_by_one);
  device.use_graphs(true);
  step.one_by_one_s = one_by_one.steps.median();
  TimedKernels timed(device);
  KernelObserver taken(timed, options);
  steps.run(&timed, taken);
  const auto per_step = [&](double sum) { return sum / static_cast<double>(options.steps); };
  for (const auto& [name, time] : taken.times)
    step.kernels[name] = {time.calls / options.steps, per_step(time.seconds), per_step(time.bytes),
                          per_step(time.flops)};
  step.kernels["update"] = update_time(steps.setup(), device);
  step.codecs = codec_times(steps.setup().layout().trained_elements(), device);
  return step;
}

void bench_gpu_step(const GpuStepOptions& options) {
  const std::unique_ptr<Device> device = make_cuda_device(0);
  const GpuStep step = measure_gpu_step(options, *device);
  out::print("{}: copies {:.0f} GB/s (read and written), {} products {:.0f} TFLOP/s\n", step.device,
             1e-9 * step.copy_rate, options.precision, 1e-12 * step.matrix_rate);
  out::print("{}, batch {}, {}, {}: {:.2f} ms a step (median of {}, spread {:.0f} %), {:.0f} samples/s", options.model,
             options.batch, options.precision, options.optimizer, 1e3 * step.step_s, options.steps, 100 * step.spread,
             step.samples_per_s);
  if (step.tokens_per_s > 0) out::print(", {:.0f} tokens/s", step.tokens_per_s);
  out::print("; with CUDA graphs, without {:.2f} ms ({:.2f} x)", 1e3 * step.one_by_one_s,
             step.one_by_one_s / step.step_s);
  double flops = 0;
  double seconds = 0;
  for (const auto& [name, time] : step.kernels) {
    flops += time.flops;
    seconds += time.seconds;
  }
  out::print("; {:.0f} TFLOP/s, {:.1f} % of the products' rate\n\n", 1e-12 * flops / step.step_s,
             100 * flops / step.step_s / step.matrix_rate);
  const auto table = [&](const char* title, const std::map<std::string, KernelTime>& times) {
    out::print("{:<22} {:>6} {:>10} {:>10} {:>8} {:>9} {:>9}\n", title, "calls", "ms a step", "floor ms", "floor %",
               "GB/s", "TFLOP/s");
    for (const auto& [name, time] : times) {
      out::print("{:<22} {:>6} {:>10.3f} {:>10.3f}", name, time.calls, 1e3 * time.seconds, 1e3 * step.floor_s(time));
      if (time.seconds > 0)  // a call as short as a launch has no meaningful rate
        out::print(" {:>8.0f} {:>9.0f} {:>9.1f}", 100 * step.floor_s(time) / time.seconds,
                   1e-9 * time.bytes / time.seconds, 1e-12 * time.flops / time.seconds);
      out::print("\n");
    }
  };
  table("kernel", step.kernels);
  out::print("{:<22} {:>6} {:>10.3f}, each alone, without its launch\n\n", "together", "", 1e3 * seconds);
  table("--compress", step.codecs);
}

}  // namespace psring::bench
