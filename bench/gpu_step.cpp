#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/core.h>

#include <psring/bench/gpu_step.h>
#include <psring/bench/report.h>
#include <psring/bench/step_observer.h>
#include <psring/bench/timed_kernels.h>
#include <psring/common/base/events/events.h>
#include <psring/common/base/rng.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/buffer.h>
#include <psring/optim/codec/compression.h>
#include <psring/optim/device_applier.h>
#include <psring/worker/registries.h>
#include <psring/worker/training.h>

namespace psring::bench {
namespace {

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
