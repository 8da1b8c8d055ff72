// Gradients that overflow: residuals of error feedback, runs that skip nearly every step, models that are not finite.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <ostream>

#include <catch2/catch.hpp>

#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/optim/checkpoint/folder.h>
#include <psring/optim/codec/compression.h>
#include <psring/tests/support/in_process_job.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/support/values.h>
#include <psring/worker/not_finite.h>
#include <psring/worker/state/compressor.h>

using namespace psring;
using namespace psring::test;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// A compressor of one unit that follows a scaler; the test moves the scaler by hand.
struct Scene {
  explicit Scene(const std::string& compress, optim::LossScaler begin)
      : scaler(begin), codec(optim::make_codec(compress, true)) {
    feedback.emplace(layout, ledger);
    feedback->follow([this] { return scaler; }, scaler.active());
    compressor.emplace(*codec, &*feedback, layout, std::vector<worker::Compressor::Part>{{0, {0, 512}}}, 1, 0, ledger);
  }

  void encode(std::uint64_t step, const std::vector<float>& gradient, std::size_t micro = 0) {
    compressor->encode(0, {0, 512}, step, micro, gradient);
  }
  std::vector<float> residual() {
    feedback->settle();
    const auto values = feedback->residual(0).as<float>();
    return {values.begin(), values.end()};
  }

  const Layout layout = make_layout({{"u", {{{"a", {512}, {Init::Kind::normal, 1}}, 0}}}}, 1);
  MemoryLedger ledger;
  optim::LossScaler scaler;
  const std::unique_ptr<optim::Codec> codec;
  std::optional<worker::ErrorFeedback> feedback;
  std::optional<worker::Compressor> compressor;
};

std::vector<float> times(std::vector<float> values, float factor) {
  for (float& value : values) value *= factor;
  return values;
}

}  // namespace

TEST_CASE("a step that is skipped leaves the residual as it was, but for the loss scale") {
  const auto compress = GENERATE(values({"bf16", "int8", "sign", "top-k:ratio=0.1", "random-k:ratio=0.1"}));
  CAPTURE(compress);
  Scene scene(compress, optim::LossScaler::dynamic());
  CHECK(scene.ledger.peak_bytes(Category::optimizer) == 2 * 512 * sizeof(float));
  scene.encode(0, normal_values(512, 1));
  scene.scaler.finished(true);
  const std::vector<float> first = scene.residual();
  CHECK(std::ranges::any_of(first, [](float value) { return value != 0; }));
  // First another worker's gradient is not finite, then this worker's.
  scene.encode(1, normal_values(512, 2));
  scene.encode(1, normal_values(512, 3), 1);
  scene.scaler.finished(false);
  scene.encode(2, std::vector<float>(512, kNaN));
  scene.scaler.finished(false);
  CHECK(scene.residual() == times(first, 0.25F));
  scene.encode(3, times(normal_values(512, 4), 0.25F));
  scene.scaler.finished(true);
  const std::vector<float> after = scene.residual();
  // The same steps without those that were skipped.
  Scene other(compress, optim::LossScaler::fixed(65536));
  other.encode(0, normal_values(512, 1));
  other.encode(3, normal_values(512, 4));
  CHECK(after == times(other.residual(), 0.25F));
}

TEST_CASE("gradients that are not finite do not enter the residual, though the owners' rule leaves them out") {
  Scene scene("int8", optim::LossScaler::fixed(8));
  scene.encode(0, normal_values(512, 1));
  scene.scaler.finished(true);
  const std::vector<float> before = scene.residual();
  std::vector<float> gradient = normal_values(512, 2);
  gradient[77] = std::numeric_limits<float>::infinity();
  scene.encode(1, gradient);
  scene.scaler.finished(true);  // the median of all was finite
  CHECK(scene.residual() == before);
}

TEST_CASE("the owners see a non-finite element of a small tensor, though random elements may all lie in padding") {
  const auto compress = GENERATE(values({"bf16", "int8", "sign", "top-k:ratio=0.01", "random-k:ratio=0.01"}));
  CAPTURE(compress);
  const Layout layout = make_layout({{"u", {{{"a", {5}, {Init::Kind::normal, 1}}, 0}}}}, 1);
  const auto codec = optim::make_codec(compress, true);
  MemoryLedger ledger;
  worker::ErrorFeedback feedback(layout, ledger);
  worker::Compressor compressor(*codec, &feedback, layout, {{0, {0, 256}}}, 1, 0, ledger);
  for (std::uint64_t step = 0; step < 8; ++step) {
    std::vector<float> gradient(256);
    gradient[3] = std::numeric_limits<float>::infinity();
    const worker::Compressor::Written written{0, compressor.encode(0, {0, 256}, step, 0, gradient)};
    compressor.mean(0, {0, 256}, step, 0, std::span(&written, 1), gradient);
    CHECK_FALSE(std::ranges::all_of(gradient, [](float value) { return std::isfinite(value); }));
    CHECK(std::all_of(gradient.begin() + 5, gradient.end(), [](float value) { return value == 0; }));
  }
}

TEST_CASE("a run of whose last hundred steps nearly all were skipped is ended") {
  const auto ends_at = [](optim::LossScaler scaler, auto finite) -> std::uint64_t {
    worker::SkipWatch watch;
    for (std::uint64_t step = 7; step < 1000; ++step) {
      try {
        watch.look(step, scaler);
        watch.look(step, scaler);  // the step's second micro-batch
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::data);
        CHECK_THAT(error.what(), Catch::Contains("of the last 100 steps were skipped"));
        return step;
      }
      scaler.finished(finite(step, scaler));
    }
    return 0;
  };
  const auto never = [](std::uint64_t, const optim::LossScaler&) { return false; };
  CHECK(ends_at(optim::LossScaler::dynamic(), never) == 107);
  CHECK(ends_at(optim::LossScaler::fixed(1024), never) == 107);
  CHECK(ends_at(optim::LossScaler(), never) == 0);
  CHECK(ends_at(optim::LossScaler::fixed(1024), [](std::uint64_t step, const auto&) { return step % 25 != 0; }) == 0);
  CHECK(ends_at(optim::LossScaler::fixed(1024), [](std::uint64_t step, const auto&) { return step % 20 == 0; }) == 0);
  CHECK(ends_at(optim::LossScaler::fixed(1024), [](std::uint64_t step, const auto&) { return step % 25 == 0; }) == 107);
  // A scale that fits is found in time, however far it is.
  CHECK(ends_at(optim::LossScaler::parse("dynamic", true),
                [](std::uint64_t, const optim::LossScaler& scaler) { return scaler.scale() == 0x1p-24F; }) == 0);
}

namespace {

struct Way {
  std::string strategy;
  std::size_t workers = 2;
  std::size_t servers = 0;
  std::string optimizer_on = "server";
  std::vector<std::size_t> hosts = {};
};
std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << way.strategy << " " << way.workers << "+" << way.servers << " " << way.optimizer_on << " "
             << way.hosts.size();
}

const std::vector<Way> kWays = {{"ps", 2, 3},       {"ps", 3, 2, "worker"}, {"ps", 3, 2, "server", {0, 2}},
                                {"ps-zero2", 2, 2}, {"ps-zero3", 3, 2},     {"ddp", 3},
                                {"zero1", 3},       {"zero2", 2},           {"zero3", 3}};

JobOptions small_job(const Way& way, const std::string& compress) {
  JobOptions job = test::small_job("mlp:20-33-17-5", 11);
  job.strategy = way.strategy;
  job.workers = way.workers;
  job.servers = way.servers;
  job.optimizer_on = way.optimizer_on;
  job.local_reduce = !way.hosts.empty();
  job.compress = compress;
  job.optimizer = "momentum";
  job.lr = 0.05;
  job.accumulate = 2;
  job.precision = "f16";
  job.comm_dtype = "f32";
  return job;
}

JobRun run(const JobOptions& job, const Way& way) { return run_job(job, Links::shm, nullptr, way.hosts); }

std::string checkpoint_of(const TemporaryFolder& folder, std::uint64_t step) {
  return folder.file(fmt::format("step-{:08}", step));
}

/// The residuals of error feedback, divided by the loss scale.
using Residuals = std::map<std::pair<std::string, std::size_t>, std::vector<float>>;
Residuals residuals_of(const optim::Checkpoint& saved) {
  Residuals all;
  const auto scale = static_cast<float>(saved.manifest().scalars.at("residual_scale"));
  for (const std::size_t keeper : saved.residuals())
    for (const optim::SavedTensor& tensor : saved.manifest().tensors) {
      if (std::ranges::count(tensor.arrays, optim::residual_array(keeper)) == 0) continue;
      const Layout layout = make_layout({{tensor.name, {{{tensor.name, tensor.shape, {}}, 0, 0}}}}, 1);
      std::vector<float>& values = all[{tensor.name, keeper}];
      values.resize(tensor.elements());
      saved.read(layout.units[0], {0, values.size()}, optim::residual_array(keeper), values);
      for (float& value : values) value /= scale;
    }
  return all;
}

/// PowerSGD needs an all-reduce of whole gradients.
bool combines(const Way& way, const std::string& compress) {
  return !compress.starts_with("power-sgd") || way.strategy == "ddp" || way.strategy == "zero1";
}

/// Writes a loss scale of 2^24 into the checkpoint, with which gradients in f16 overflow.
void raise_loss_scale(const std::string& folder, double scale = 0x1p24) {
  optim::Manifest manifest = optim::Checkpoint(folder).manifest();
  manifest.scalars["loss_scale"] = scale;
  optim::write_manifest(folder, manifest);
}

}  // namespace

TEST_CASE("whichever steps are skipped, error feedback loses nothing and training goes on") {
  const auto compress =
      GENERATE(values({"bf16", "int8", "sign", "top-k:ratio=0.05", "random-k:ratio=0.05", "power-sgd"}));
  const auto way = GENERATE(from_range(kWays));
  CAPTURE(compress, way);
  if (!combines(way, compress)) return;
  JobOptions job = small_job(way, compress);
  const TemporaryFolder folder;
  job.checkpoint_every = 1;
  job.checkpoint_dir = folder.path();
  job.steps = 3;
  run(job, way);
  raise_loss_scale(checkpoint_of(folder, 3));
  job.resume = checkpoint_of(folder, 3);
  job.steps = 18;
  const JobRun all = run(job, way);
  for (const WorkerRun& worker : all.workers) CHECK(worker.peaks == worker.predicted.worker_memory);
  std::size_t skipped = 0;
  for (std::uint64_t step = 3; step < 18; ++step) {
    CAPTURE(step);
    const optim::Checkpoint before(checkpoint_of(folder, step));
    const optim::Checkpoint after(checkpoint_of(folder, step + 1));
    const auto count = [](const optim::Checkpoint& of) { return of.manifest().scalars.at("skipped_steps"); };
    const bool same = residuals_of(before) == residuals_of(after);
    CHECK(same == (count(after) > count(before)));
    skipped += same ? 1 : 0;
  }
  CHECK((skipped > 0 && skipped < 12));
  // A run that continues after a skipped step, or between two of them, ends in the same bits.
  const TemporaryFolder other;
  job.checkpoint_dir = other.path();
  job.resume = checkpoint_of(folder, 4);
  CHECK((run(job, way).workers[0].model == all.workers[0].model));
}

TEST_CASE("top-k of everything is bitwise identical to no compression, also when steps are skipped") {
  const auto way = GENERATE(from_range(kWays));
  CAPTURE(way);
  const auto model = [&](const char* compress) {
    const TemporaryFolder folder;
    JobOptions job = small_job(way, compress);
    job.accumulate = 1;
    job.checkpoint_every = 3;
    job.checkpoint_dir = folder.path();
    job.steps = 3;
    run(job, way);
    raise_loss_scale(checkpoint_of(folder, 3));
    job.resume = checkpoint_of(folder, 3);
    job.steps = 18;
    return run(job, way).workers[0].model;
  };
  CHECK((model("top-k:ratio=1") == model("none")));
}

/// In f32 powers of two change no bit of a gradient but its exponent, and codecs follow.
TEST_CASE("residuals follow the loss scale of the run that continues") {
  const auto compress = GENERATE(values({"int8", "power-sgd"}));
  const auto way = GENERATE(from_range(kWays));
  CAPTURE(compress, way);
  if (!combines(way, compress)) return;
  JobOptions job = small_job(way, compress);
  job.precision = "f32";
  job.comm_dtype = "";
  job.loss_scale = "1024";
  const TemporaryFolder folder;
  job.checkpoint_dir = folder.path();
  job.checkpoint_every = 4;
  const std::string model = run(job, way).workers[0].model;
  for (const char* scale : {"1024", "16", "32768", "off"}) {
    CAPTURE(scale);
    const TemporaryFolder other;
    job.checkpoint_dir = other.path();
    job.loss_scale = scale;
    job.resume = checkpoint_of(folder, 4);
    CHECK((run(job, way).workers[0].model == model));
  }
}

TEST_CASE("a worker without samples in a step hears whether the step before was skipped") {
  const auto model = [](const char* strategy, double scale) {
    const Way way{strategy, 3, std::string(strategy).starts_with("ps") ? std::size_t{2} : 0};
    JobOptions job = small_job(way, "none");
    job.data = "synthetic:samples=61";  // step 5 has one
    job.pad = "none";
    job.accumulate = 1;
    const TemporaryFolder folder;
    job.checkpoint_every = 3;
    job.checkpoint_dir = folder.path();
    job.steps = 3;
    run(job, way);
    raise_loss_scale(checkpoint_of(folder, 3), scale);
    job.resume = checkpoint_of(folder, 3);
    job.steps = 18;
    return run(job, way).workers[0].model;
  };
  const auto* const strategy = GENERATE("ps", "ps-zero2", "ps-zero3");
  for (double scale = 0x1p16; scale <= 0x1p24; scale *= 2) {  // with one scale, step 4 is the last skipped step
    CAPTURE(strategy, scale);
    CHECK((model(strategy, scale) == model("ddp", scale)));
  }
}

TEST_CASE("a run that skips every step ends with an error") {
  const Way way{"ps", 2, 2};
  JobOptions job = small_job(way, "none");
  job.loss_scale = "16777216";
  job.steps = 200;
  CHECK_THAT(error_of(ErrorKind::data, [&] { run(job, way); }), Catch::Contains("step 100: 100 of the last 100 steps"));
}

TEST_CASE("a model that is not finite is not saved, and the checkpoints before it stay") {
  const auto way = GENERATE(values<Way>({{"single", 1}, {"ps", 2, 2}, {"ps-zero3", 2, 2}, {"ddp", 2}, {"zero3", 2}}));
  CAPTURE(way);
  JobOptions job = small_job(way, "none");
  job.precision = "f32";
  job.comm_dtype = "";
  job.accumulate = 1;
  const TemporaryFolder folder;
  job.checkpoint_dir = folder.path();
  job.checkpoint_every = 2;
  job.checkpoint_keep = 1;
  job.steps = 2;
  run(job, way);
  job.resume = checkpoint_of(folder, 2);
  job.lr = 1e39;
  job.steps = 4;
  SECTION("at a checkpoint") {
    job.checkpoint_every = 1;
    // Worker 0 detects NaN when it saves, another worker when it continues: either may be first.
    const std::string line = error_of(ErrorKind::data, [&] { run(job, way); });
    CHECK_THAT(line, Catch::Contains("step 3: ") &&
                         (Catch::Contains("holds NaN or infinity") || Catch::Contains("is not finite")));
  }
  SECTION("at the end") {
    job.steps = 3;
    job.checkpoint_every = 0;
    const std::string line = error_of(ErrorKind::data, [&] { run(job, way); });
    CHECK_THAT(line, Catch::Contains("after step 2, the last") && Catch::Contains("is not saved"));
  }
  const auto left = optim::CheckpointFolder(folder.path()).complete();
  REQUIRE(left.size() == 1);
  CHECK(left[0].step == 2);
  optim::Checkpoint(left[0].path).verify();
}

TEST_CASE("a checkpoint that holds NaN is refused, in whichever array") {
  const Layout layout = make_layout({{"u", {{{"a", {512}, {Init::Kind::normal, 1}}, 0}}}}, 1);
  const TemporaryFolder folder;
  std::vector<float> bad = normal_values(512, 1);
  bad[300] = kNaN;
  const std::vector<float> good = normal_values(512, 2);
  const std::string residual = optim::residual_array(0);
  const optim::StatePart parts[] = {{&layout.units[0], {0, 512}, optim::kValues, good},
                                    {&layout.units[0], {0, 512}, residual, bad}};
  optim::write_shard(folder.file("worker-0.shard"), 1, parts);
  const optim::Manifest manifest{
      .step = 1, .facts = {}, .scalars = {}, .tensors = {{"a", {512}, {optim::kValues, residual}}}};
  CHECK_THAT(error_of(ErrorKind::data, [&] { optim::write_manifest(folder.path(), manifest); }),
             Catch::Contains("step 1: residual.0 of 'a' holds NaN"));
  const optim::ShardFile shard(folder.file("worker-0.shard"));
  std::vector<float> values(512);
  shard.read(shard.segments()[0], {0, 512}, values);
  CHECK_THAT(error_of(ErrorKind::data,
                      [&] {
                        shard.read(shard.segments()[1], {0, 512}, values);
                      }),
             Catch::Contains("residual.0 of 'a' holds NaN"));
}
