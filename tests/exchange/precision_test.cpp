// In 16 bit every way of training still learns the same, and moves and keeps what the formulas say.
#include <cmath>
#include <limits>

#include <catch2/catch.hpp>

#include <psring/common/base/elements.h>
#include <psring/common/base/text/error.h>
#include <psring/optim/mixed.h>
#include <psring/optim/norm.h>
#include <psring/optim/rules.h>
#include <psring/tests/support/in_process_job.h>
#include <psring/tests/support/values.h>

using namespace psring;
using test::JobRun;
using test::Links;
using test::run_job;

namespace {

constexpr const char* kMlp = "mlp:20-33-17-5";
constexpr const char* kGpt = "gpt:layers=3,dim=16,heads=2,context=8,vocab=31";

struct Types {
  std::string precision;
  std::string gradients;  ///< "": the same
  std::uint64_t p = 2;
  std::uint64_t g = 2;
};
const std::vector<Types> kTypes = {
    {"bf16", "", 2, 2}, {"f16", "", 2, 2}, {"bf16", "f32", 2, 4}, {"f32", "bf16", 4, 2}, {"f32", "f16", 4, 2}};

JobOptions small_job(const char* model, const Types& types) {
  JobOptions job = test::small_job(model, 9);
  job.servers = 0;
  job.weight_decay = 0.1;
  job.precision = types.precision;
  job.comm_dtype = types.gradients;
  return job;
}

bool uses_servers(const std::string& strategy) { return strategy.starts_with("ps"); }

JobRun run_as(JobOptions job, std::size_t workers, const std::string& strategy, Links links = Links::shm) {
  job.strategy = strategy;
  job.workers = workers;
  job.servers = uses_servers(strategy) ? 2 : 0;
  return run_job(job, links);
}

JobRun reference(JobOptions job, std::size_t workers, bool at_owner = false) {
  job.strategy = "single";
  job.workers = 1;
  job.virtual_workers = workers;
  if (at_owner) job.accumulate_at = "owner";
  return run_job(job);
}

void check_all(const JobRun& run, const JobRun& expected) {
  for (const test::WorkerRun& worker : run.workers) {
    CHECK((worker.model == expected.workers[0].model));
    CHECK(worker.sent == run.steps * worker.predicted.worker_sends.value());
    CHECK(worker.received == run.steps * worker.predicted.worker_receives.value());
    CHECK(worker.peaks == worker.predicted.worker_memory);
  }
}

/// Did the servers book the predicted bytes, in each category that has a prediction?
bool within(std::map<Category, std::uint64_t> peaks, const std::map<Category, std::uint64_t>& predicted) {
  std::erase_if(peaks, [&](const auto& each) { return !predicted.contains(each.first); });
  return peaks == predicted;
}

constexpr const char* kStrategies[] = {"ps", "ps-zero2", "ps-zero3", "ddp-naive", "ddp", "zero1", "zero2", "zero3"};

}  // namespace

TEST_CASE("elements: widening is exact, rounding is to the nearest even, sums are rounded once") {
  const std::vector<float> values{1, 1 + 0x1p-8F, 1 + 3 * 0x1p-8F, -2.5F, 0, 65504, 1e-6F};
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    std::vector<std::byte> bytes(values.size() * size_bytes(type));
    const Elements kept(bytes.data(), values.size(), type);
    narrow(values, kept);
    std::vector<float> again(values.size());
    widen(kept, again);
    std::vector<float> rounded = values;
    round_to(type, rounded);
    CHECK(again == rounded);
    CHECK(again[0] == 1);
    if (type == DType::bf16) CHECK(again[1] == 1);                // half way: to the even one
    if (type == DType::bf16) CHECK(again[2] == 1 + 4 * 0x1p-8F);  // half way: to the even one
    add(kept, values);
    std::vector<float> sums(values.size());
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = rounded[i] + values[i];
    round_to(type, sums);
    widen(kept, again);
    CHECK(again == sums);
  }
  std::vector<std::byte> few(4);
  CHECK_THROWS_AS(narrow(values, Elements(few.data(), 2, DType::f16)), Error);
  CHECK_THROWS_AS(Elements(few.data(), 2, DType::f16).as<float>(), Error);
}

TEST_CASE("an update in blocks of any type is bitwise identical to an f32 update of the rounded values") {
  constexpr std::size_t kSize = 5000;  // some blocks and a rest
  const auto rule = optim::make_adamw({.weight_decay = 0.1});
  const optim::Update update{3, 0.01F, 0.5F};
  std::vector<float> gradient(kSize), parameters(kSize);
  for (std::size_t i = 0; i < kSize; ++i) {
    gradient[i] = std::sin(static_cast<float>(i));
    parameters[i] = std::cos(static_cast<float>(i));
  }
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    const bool with_master = GENERATE(true, false);
    std::vector<float> rounded_gradient = gradient, start = parameters;
    round_to(type, rounded_gradient);
    if (!with_master) round_to(type, start);
    std::vector<float> m(kSize, 0.1F), v(kSize, 0.2F), expected(kSize);
    rule->apply(update, start, rounded_gradient, {{m, v}}, expected);
    round_to(type, expected);

    std::vector<float> m2(kSize, 0.1F), v2(kSize, 0.2F), master = parameters;
    std::vector<std::byte> g(kSize * size_bytes(type)), p(kSize * size_bytes(type));
    const Elements kept_g(g.data(), kSize, type), kept_p(p.data(), kSize, type);
    narrow(gradient, kept_g);
    narrow(parameters, kept_p);
    optim::apply(*rule, update,
                 {.parameters = kept_p,
                  .gradient = kept_g,
                  .master = with_master ? std::span(master) : std::span<float>(),
                  .state = {{m2, v2}},
                  .out = kept_p});
    std::vector<float> result(kSize);
    widen(kept_p, result);
    CHECK(result == expected);
    CHECK(m2 == m);
  }
}

TEST_CASE("in 16 bit all strategies are bitwise identical to single with the same number of virtual workers") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto types = GENERATE(from_range(kTypes));
  const auto workers = GENERATE(values<std::size_t>({1, 2, 3, 4}));
  const auto clip = GENERATE(values({0.0, 0.05}));
  JobOptions job = small_job(model, types);
  job.clip_norm = clip;
  const JobRun expected = reference(job, workers);
  for (const char* strategy : kStrategies) {
    CAPTURE(model, types.precision, types.gradients, workers, clip, strategy);
    check_all(run_as(job, workers, strategy), expected);
  }
}

TEST_CASE("in 16 bit micro-batches add up locally or at owners, in the gradients' type") {
  const auto types = GENERATE(from_range(kTypes));
  JobOptions job = small_job(kGpt, types);
  job.global_batch = 18;
  job.accumulate = 3;
  for (const char* strategy : {"ddp", "zero1", "ps"}) check_all(run_as(job, 3, strategy), reference(job, 3));
  for (const char* strategy : {"zero2", "zero3", "ps-zero2", "ps-zero3"})
    check_all(run_as(job, 3, strategy), reference(job, 3, true));
}

TEST_CASE("in 16 bit bytes and memory are those of the design's rows") {
  const auto types = GENERATE(from_range(kTypes));
  const auto n = GENERATE(values<std::size_t>({2, 3, 4}));
  const auto micros = GENERATE(values<std::size_t>({1, 3}));
  JobOptions job = small_job(kMlp, types);
  job.global_batch = 12 * micros;
  job.accumulate = micros;
  const auto check_row = [&](const char* strategy, std::uint64_t g, std::uint64_t p, std::size_t cut_p,
                             std::size_t cut_g, std::size_t cut_o) {
    CAPTURE(types.precision, types.gradients, n, micros, strategy);
    const JobRun run = run_as(job, n, strategy);
    const std::uint64_t mg = types.g * run.parameters;
    const std::uint64_t mp = types.p * run.parameters;
    const std::uint64_t o = (8 + (types.p == 2 ? 4 : 0)) * run.parameters;
    for (const test::WorkerRun& worker : run.workers) {
      CHECK(worker.sent == run.steps * (n - 1) * (g * mg + p * mp) / n);
      CHECK(worker.peaks.at(Category::parameters) == mp / cut_p);
      CHECK(worker.peaks.at(Category::gradients) == mg / cut_g);
      CHECK(worker.peaks.at(Category::optimizer) == o / cut_o);
    }
  };
  check_row("ddp", 2, 0, 1, 1, 1);
  check_row("zero1", 1, 1, 1, 1, n);
  check_row("zero2", micros, 1, 1, n, n);
  check_row("zero3", micros, 2 * micros, n, n, n);
  job.reshard_after_forward = false;
  check_row("zero3", micros, micros, n, n, n);
  if (micros > 1) return;
  job.reshard_after_forward = true;
  for (const char* strategy : {"ps", "ps-zero2", "ps-zero3"}) {
    CAPTURE(types.precision, types.gradients, n, strategy);
    const JobRun run = run_as(job, n, strategy);
    const std::uint64_t mg = types.g * run.parameters;
    const std::uint64_t pulled = (std::string(strategy) == "ps-zero3" ? 2 : 1) * types.p * run.parameters;
    for (const test::WorkerRun& worker : run.workers) {
      CHECK(worker.sent == run.steps * mg);
      CHECK(worker.received == run.steps * pulled);
    }
    CHECK(run.servers_received == run.steps * n * mg);
    CHECK(run.servers_sent == run.steps * n * pulled);
  }
}

TEST_CASE("in 16 bit the other links, optimizers and places of the optimizer change nothing") {
  JobOptions job = small_job(kGpt, {"bf16", ""});
  SECTION("over TCP") {
    for (const char* strategy : {"ps", "ps-zero3", "zero3"})
      check_all(run_as(job, 2, strategy, Links::tcp), reference(job, 2));
  }
  SECTION("within a process") { check_all(run_as(job, 3, "ps-zero2", Links::in_process), reference(job, 3)); }
  SECTION("the optimizer on the worker") {
    const JobRun expected = reference(job, 3);
    job.optimizer_on = "worker";
    check_all(run_as(job, 3, "ps"), expected);
  }
  SECTION("without a master copy") {
    job.master_copy = false;
    for (const char* strategy : kStrategies) check_all(run_as(job, 2, strategy), reference(job, 2));
  }
  SECTION("LAMB, with gradients in f32") {
    job.optimizer = "lamb";
    job.comm_dtype = "f32";
    for (const char* strategy : kStrategies) check_all(run_as(job, 3, strategy), reference(job, 3));
  }
}

TEST_CASE("a step whose gradients are not finite is skipped by all, and the scale halved") {
  JobOptions job = small_job(kMlp, {"f16", ""});
  SECTION("dynamic: from 65536 on, until they fit") {}
  SECTION("clipped") { job.clip_norm = 0.05; }
  const JobRun expected = reference(job, 3);
  for (const char* strategy : kStrategies) {
    CAPTURE(strategy);
    const JobRun run = run_as(job, 3, strategy);
    check_all(run, expected);
    for (const auto& server : run.server_peaks) CHECK(within(server, run.predicted.server_memory));
  }
  job.optimizer_on = "worker";
  check_all(run_as(job, 3, "ps"), expected);
  job.optimizer_on = "server";
  // It was at work, or this proves nothing.
  job.loss_scale = "off";
  CHECK((reference(job, 3).workers[0].model != expected.workers[0].model));
}

TEST_CASE("what is computed again for backward has the same bits, and is not kept") {
  const auto model = GENERATE(values({kMlp, "bn-mlp:20-33-17-5", "gelu-mlp:dim=16,layers=3", kGpt}));
  const auto precision = GENERATE(values({"f32", "bf16"}));
  const auto units = GENERATE(values({"layer", "block"}));
  JobOptions job = small_job(model, {precision, ""});
  job.units = units;
  const JobRun expected = reference(job, 2);
  job.activation_checkpointing = "unit";
  for (const char* strategy : {"ps", "ddp", "zero3", "ps-zero3"}) {
    if (std::string(model).starts_with("bn") && uses_servers(strategy)) continue;  // only worker 0's buffers count
    CAPTURE(model, precision, units, strategy);
    check_all(run_as(job, 2, strategy), expected);
  }
  const JobRun run = reference(job, 2);
  CHECK((run.workers[0].model == expected.workers[0].model));
  if (std::string(model) == kGpt) CHECK(run.workers[0].activations < expected.workers[0].activations);
}

TEST_CASE("the loss scaler halves, grows, counts, and keeps within its range") {
  using optim::LossScaler;
  LossScaler off = LossScaler::parse("auto", false);
  CHECK_FALSE(off.active());
  CHECK(off.scale() == 1);
  LossScaler dynamic = LossScaler::parse("auto", true);
  CHECK(dynamic.scale() == 65536);
  dynamic.finished(false);
  CHECK(dynamic.scale() == 32768);
  CHECK(dynamic.skipped() == 1);
  LossScaler again = LossScaler::parse("auto", true);
  again.restore(dynamic.state());
  CHECK(again.scale() == 32768);
  CHECK(again.skipped() == 1);
  again = LossScaler::parse("auto", true);
  again.restore(off.state());  // what did not scale has no scale to go on with
  CHECK(again.scale() == 65536);
  for (const auto& [name, value] : std::map<std::string, double>{
           {"loss_scale", 3}, {"loss_scale", -8}, {"skipped_steps", 0.5}, {"good_steps", 1e300}})
    CHECK_THAT(test::error_of(ErrorKind::data, [&] { again.restore({{name, value}}); }), Catch::Contains(name));
  for (int i = 0; i < 1999; ++i) dynamic.finished(true);
  CHECK(dynamic.scale() == 32768);
  dynamic.finished(true);
  CHECK(dynamic.scale() == 65536);
  for (int i = 0; i < 100; ++i) dynamic.finished(false);
  CHECK(dynamic.scale() == 0x1p-24F);
  LossScaler fixed = LossScaler::parse("1024", true);
  fixed.finished(false);
  CHECK(fixed.scale() == 1024);
  CHECK(fixed.skipped() == 1);
  for (const char* wrong : {"", "3", "-2", "0", "1e30", "16x", "on"})
    CHECK_THAT(test::error_of(ErrorKind::usage, [&] { LossScaler::parse(wrong, true); }),
               Catch::Contains("--loss-scale"));
}

TEST_CASE("what has no meaning in 16 bit is a usage error") {
  const auto refused = [](JobOptions job, const char* flag) {
    CHECK_THAT(test::error_of(ErrorKind::usage, [&] { run_as(job, 2, "ddp"); }), Catch::Contains(flag));
  };
  JobOptions job = small_job(kMlp, {"bf16", ""});
  job.optimizer = "lamb";
  refused(job, "--comm-dtype");
  job.comm_dtype = "f32";
  job.master_copy = false;
  refused(job, "--master-copy");
  refused(small_job(kMlp, {"f8", ""}), "--precision");
  refused(small_job(kMlp, {"f32", "i8"}), "--comm-dtype");
}

TEST_CASE("bf16 and f16 learn what f32 learns") {
  JobOptions job = small_job(kGpt, {"f32", ""});
  job.steps = 120;
  const auto last_loss = [&] {
    const JobRun run = reference(job, 1);
    double sum = 0;
    for (std::size_t i = 100; i < 120; ++i) sum += run.workers[0].steps[i].loss / 20;
    return sum;
  };
  const double expected = last_loss();
  job.precision = "bf16";
  CHECK(last_loss() == Approx(expected).epsilon(0.02));
  job.precision = "f16";
  CHECK(last_loss() == Approx(expected).epsilon(0.02));
}
