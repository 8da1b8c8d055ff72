// Whole runs on a device beside the same on the host: the loss of every step, and the parameters at the end.
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/clock.h>
#include <psring/common/base/events/events.h>
#include <psring/common/device/device.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/worker/model/device/tensor_kernels.h>
#include <psring/worker/training.h>

using namespace psring;
using namespace psring::worker;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

struct Trained {
  std::vector<double> losses;
  std::vector<float> parameters;
  double accuracy = 0;
  std::size_t booked = 0;
  std::size_t predicted = 0;
};

class Losses final : public ReportListener {
 public:
  explicit Losses(Trained& run) : run_(run) {}
  void on_step(const StepReport& report) override { run_.losses.push_back(report.loss); }
  void on_evaluation(const Evaluation& evaluation) override {
    run_.accuracy = static_cast<double>(evaluation.correct) / static_cast<double>(evaluation.rows);
  }

 private:
  Trained& run_;
};

class Shown final : public EventListener {
 public:
  explicit Shown(std::vector<Event>& events) : events_(events) {}
  void on_event(const Event& event) override { events_.push_back(event); }

 private:
  std::vector<Event>& events_;
};

Trained train(JobOptions job, bool on_device, std::vector<Event>* shown = nullptr) {
  job.strategy = "single";
  job.workers = 1;
  job.device = on_device ? "cuda" : "cpu";
  Registries registries;
  register_builtins(registries);
  optim::OptimizerRegistry optimizers;
  optim::register_builtin_optimizers(optimizers);
  const TrainSetup setup(job, registries, optimizers);
  const std::unique_ptr<Device> device = on_device ? make_cuda_device(0) : nullptr;
  MemoryLedger memory;
  const SystemClock clock;
  std::optional<Shown> listener;
  Events events(clock);
  if (shown != nullptr) events.listen(listener.emplace(*shown), Events::Wanted::details);
  if (device != nullptr && shown != nullptr) device->report_to(events);
  Training training(setup, {}, {.memory = memory, .clock = clock, .events = events, .device = device.get()});
  Trained run;
  Losses losses(run);
  events.listen(losses, Events::Wanted::reports);
  training.run();
  training.read([&](ConstElements values) {
    std::vector<float> floats(values.size());
    widen(values, floats);
    run.parameters.insert(run.parameters.end(), floats.begin(), floats.end());
  });
  if (device != nullptr) device->finish();
  for (const auto& [category, bytes] : training.predict().worker_memory) {
    run.booked += memory.peak_bytes(category);
    run.predicted += bytes;
  }
  return run;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double sum = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(sum / norm);
}

struct DeviceUse {
  bool played = false;
  std::size_t booked = 0;
  std::size_t held = 0;  ///< as the driver says
};

/// Makes a device with buffers and a product, and returns the memory that it uses.
DeviceUse use_device() {
  MemoryLedger memory;
  const auto device = make_cuda_device(0);
  device->book(memory);
  const std::size_t before = device->memory().held_bytes;
  const Buffer buffer(64 * kMiB, Category::parameters, memory, *device);
  Buffer product(256 * 256 * sizeof(float), Category::parameters, memory, *device);
  const Elements square = product.elements(DType::f32);
  Buffer result(256 * 256 * sizeof(float), Category::parameters, memory, *device);
  worker::make_tensor_kernels(*device)->product(
      {.shape = {.m = 256, .n = 256, .k = 256}, .a = square, .b = square, .out = result.elements(DType::f32)});
  device->wait(device->mark());
  return {.played = device->name().starts_with("CUDA on the host"),
          .booked = memory.current_bytes(),
          .held = device->memory().held_bytes - before};
}

JobOptions mlp() {
  JobOptions job;
  job.model = "mlp:20-24-7";
  job.data = "synthetic:samples=64";
  job.global_batch = 16;
  job.steps = 10;
  job.lr = 0.1;
  job.seed = 5;
  return job;
}

JobOptions gpt() {
  JobOptions job = mlp();
  job.model = "gpt:layers=2,dim=64,heads=1,context=20,vocab=50";
  job.global_batch = 4;
  job.steps = 6;
  job.optimizer = "adamw";
  job.lr = 0.003;
  return job;
}

void check_like_host(const JobOptions& job, double tolerance) {
  INFO(job.model << ", " << job.optimizer << ", " << job.precision);
  const Trained host = train(job, false);
  const Trained device = train(job, true);
  REQUIRE(host.losses.size() == device.losses.size());
  for (std::size_t i = 0; i < host.losses.size(); ++i)
    CHECK(device.losses[i] == Approx(host.losses[i]).epsilon(tolerance));
  CHECK(distance(device.parameters, host.parameters) < tolerance);
  CHECK(device.accuracy == Approx(host.accuracy).margin(tolerance < 1e-3 ? 1e-9 : 0.2));
  CHECK(device.booked == device.predicted);
  CHECK(train(job, true).parameters == device.parameters);
}

}  // namespace

TEST_CASE("an MLP trains on a device as on the host") {
  for (const char* optimizer : {"sgd", "momentum", "adam", "lamb"}) {
    JobOptions job = mlp();
    job.optimizer = optimizer;
    if (job.optimizer == "adam" || job.optimizer == "lamb") job.lr = 0.003;
    check_like_host(job, 1e-5);
  }
  JobOptions job = mlp();
  job.model = "gelu-mlp:dim=24,layers=2";
  check_like_host(job, 1e-5);
}

TEST_CASE("a GPT trains on a device as on the host") {
  check_like_host(gpt(), 2e-5);
  JobOptions job = gpt();
  job.activation_checkpointing = "unit";
  job.units = "block";
  job.accumulate = 2;
  job.clip_norm = 0.5;
  check_like_host(job, 2e-5);
}

TEST_CASE("a GPT trains on a device in 16 bit, with a copy in f32 and a loss that is scaled") {
  for (const char* precision : {"bf16", "f16"}) {
    JobOptions job = gpt();
    job.precision = precision;
    check_like_host(job, 2e-2);
    job.comm_dtype = "f32";
    check_like_host(job, 2e-2);
  }
}

TEST_CASE("virtual workers on a device, added up there") {
  JobOptions job = mlp();
  job.virtual_workers = 2;
  check_like_host(job, 1e-5);
}

TEST_CASE(
    "a run on a device goes on from a checkpoint, wherever that was made, to the bits of one that was not disturbed") {
  JobOptions job = gpt();
  job.precision = "bf16";
  const Trained whole = train(job, true);
  const test::TemporaryFolder folder;
  JobOptions saving = job;
  saving.checkpoint_every = 3;
  saving.checkpoint_dir = folder.path();
  CHECK(train(saving, true).parameters == whole.parameters);
  JobOptions resumed = job;
  resumed.resume = folder.file("step-00000003");
  CHECK(train(resumed, true).parameters == whole.parameters);
  CHECK(distance(train(resumed, false).parameters, whole.parameters) < 2e-2);
}

TEST_CASE("what is booked of a device is what its driver says") {
  use_device();  // a GPU's memory holds kernels, too, from their first use on
  const DeviceUse use = use_device();
  CHECK(use.booked > 64 * kMiB);
  // A GPU's driver cuts what is small from chunks of 2 MiB that it may hold already; the host's has gaps.
  CHECK(use.held + (use.played ? 0 : 2 * kMiB) >= use.booked);
  CHECK(use.held <= use.booked + (use.played ? 4096 : 16 * kMiB));
}

TEST_CASE("what has no form for a device is refused, and named") {
  const auto refused = [](const char* what, auto change) {
    JobOptions job = mlp();
    change(job);
    CHECK_THROWS_WITH(train(job, true), Catch::Contains("--device cuda") && Catch::Contains(what));
  };
  refused("norms.0", [](JobOptions& job) { job.model = "bn-mlp:20-24-7"; });
  refused("convs.0", [](JobOptions& job) { job.model = "conv:1x4x5-3c3-7"; });
  refused("branches", [](JobOptions& job) { job.model = "conv:1x4x5-3c3-r3-7"; });
  refused("layer 1", [](JobOptions& job) { job.model = "mlp:20-24-d0.5-7"; });
  refused("its loss", [](JobOptions& job) { job.model = "mse-mlp:20-24-7"; });
}

TEST_CASE("events show what the device did, beside what the host did") {
  const JobOptions job = mlp();
  std::vector<Event> shown;
  const Trained run = train(job, true, &shown);
  CHECK(run.losses == train(job, true).losses);
  std::map<std::string, std::size_t> names;
  Moment last;
  std::optional<Moment> first_of_host;
  for (const Event& event : shown) {
    if (!first_of_host && std::holds_alternative<Activity>(event.what)) first_of_host = event.start;
    const auto* work = std::get_if<DeviceWork>(&event.what);
    if (work == nullptr) continue;
    ++names[work->name];
    CHECK(event.start >= last - std::chrono::microseconds(1));  // of one queue: one after the other
    last = event.start + event.duration;
  }
  // The job has two layers, ten steps and an evaluation.
  const std::size_t steps = *job.steps;
  CHECK(names["forward 0"] > steps);
  CHECK(names["forward 1"] == names["forward 0"]);
  CHECK(names["backward 0"] == steps);
  CHECK(names["backward 1"] == steps);
  CHECK(last > first_of_host.value());
  std::size_t updates = 0;
  for (const auto& [name, count] : names) updates += name.starts_with("update ") ? count : 0;
  CHECK(updates >= steps);
}
