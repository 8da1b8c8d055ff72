// --freeze: what is not trained keeps its values, and has no gradient, no state and no traffic, in every way of
// training.
#include <ostream>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/optim/optimizers.h>
#include <psring/tests/support/in_process_job.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/support/values.h>
#include <psring/worker/model/safetensors.h>
#include <psring/worker/training.h>

using namespace psring;
using Catch::Contains;
using test::JobRun;
using test::Links;

namespace {

constexpr const char* kMlp = "mlp:20-33-17-5";
constexpr const char* kBatchNorm = "bn-mlp:20-33-17-5";
constexpr const char* kGpt = "gpt:layers=2,dim=16,heads=2,context=8,vocab=31";  // root, h.0, unit.2, h.1, unit.4

JobOptions small_job(const char* model, const char* freeze) {
  JobOptions job = test::small_job(model, 5);
  job.strategy = "single";
  job.workers = 1;
  job.freeze = freeze;
  job.servers = 0;
  job.weight_decay = 0.1;
  return job;
}

worker::TrainSetup set_up(const JobOptions& job) {
  worker::Registries registries;
  worker::register_builtins(registries);
  optim::OptimizerRegistry optimizers;
  optim::register_builtin_optimizers(optimizers);
  return {job, registries, optimizers};
}

/// How a job is done, and by whom.
struct Way {
  std::string strategy;
  std::size_t servers = 0;
  std::string optimizer_on = "server";
  std::string placement = "standalone";
  bool local_reduce = false;
};
std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << way.strategy << " " << way.servers << " " << way.optimizer_on << " " << way.placement << " "
             << way.local_reduce;
}

const std::vector<Way> kWays = {{"ddp-naive"},
                                {"ddp"},
                                {"zero1"},
                                {"zero2"},
                                {"zero3"},
                                {"ps", 2},
                                {"ps", 2, "worker"},
                                {"ps", 1, "server", "standalone", true},
                                {"dp", 1, "worker", "colocated"},
                                {"ps-colocated", 2, "server", "colocated"},
                                {"ps-zero2", 2},
                                {"ps-zero3", 2},
                                {"ps-zero3", 1, "server", "colocated"}};

bool at_owner(const Way& way) { return way.strategy.ends_with("zero2") || way.strategy.ends_with("zero3"); }

JobRun run_as(JobOptions job, std::size_t workers, const Way& way) {
  job.strategy = way.strategy;
  job.workers = workers;
  job.servers = std::min(way.servers, way.placement == "colocated" ? workers : way.servers);
  job.optimizer_on = way.optimizer_on;
  job.placement = way.placement;
  job.local_reduce = way.local_reduce;
  return test::run_job(job, Links::shm);
}

JobRun reference(JobOptions job, std::size_t workers, bool owner = false) {
  job.strategy = "single";
  job.workers = 1;
  job.virtual_workers = workers;
  if (owner) job.accumulate_at = "owner";
  return test::run_job(job);
}

/// Bits, bytes and memory.
void check_all(const JobRun& run, const JobRun& expected) {
  // Layers' buffers are worker 0's where strategies do not share them.
  if (run.predicted.same_bits) CHECK((run.workers[0].model == expected.workers[0].model));
  for (const test::WorkerRun& worker : run.workers) {
    CHECK(worker.sent == run.steps * worker.predicted.worker_sends.value() + worker.predicted.run_sends);
    CHECK(worker.received == run.steps * worker.predicted.worker_receives.value() + worker.predicted.run_receives);
    for (const auto& [category, bytes] : worker.predicted.worker_memory)
      if (category != Category::communication || worker.predicted.run_receives == 0)
        CHECK(worker.peaks.at(category) == bytes);
  }
  if (run.server_peaks.empty()) return;
  CHECK(run.servers_received == run.steps * run.predicted.server_receives.value());
  CHECK(run.servers_sent == run.steps * run.predicted.server_sends.value());
  for (const auto& peaks : run.server_peaks)
    if (!run.predicted.server_memory.empty()) CHECK(peaks == run.predicted.server_memory);
}

/// A model's tensors, by unit: as it starts, and as a run ended.
struct Values {
  std::vector<float> start;
  std::vector<float> end;
};
std::vector<Values> values_of(const Layout& layout, const std::string& model, std::uint64_t seed) {
  const test::TemporaryFolder folder;
  const worker::TensorFile file(test::write_file(folder.file("model.safetensors"), model));
  std::vector<Values> values;
  for (const UnitLayout& unit : layout.units) {
    Values& of = values.emplace_back();
    of.start.resize(unit.elements);
    of.end.resize(unit.elements);
    initialise(unit, {0, unit.elements}, seed, of.start);
    worker::load_range(file, unit, {0, unit.elements}, of.end);
  }
  return values;
}

}  // namespace

TEST_CASE("what is frozen stays, and a step of the rest is that of a run that trains all") {
  const auto [model, freeze] = GENERATE(table<const char*, const char*>({{kMlp, "layers.0"},
                                                                         {kMlp, "layers.1"},
                                                                         {kMlp, "layers.2"},
                                                                         {kMlp, "0,2"},
                                                                         {kBatchNorm, "layers.0,norms.0"},
                                                                         {kBatchNorm, "norms.1"},
                                                                         {kGpt, "root"},
                                                                         {kGpt, "h.0"},
                                                                         {kGpt, "unit.2,h.1"},
                                                                         {kGpt, "root,h.0"},
                                                                         {kGpt, "h.*"}}));
  CAPTURE(model, freeze);
  JobOptions job = small_job(model, freeze);
  job.optimizer = "sgd";
  job.weight_decay.reset();
  job.steps = 1;
  const Layout layout = set_up(job).layout();
  const std::vector<Values> values = values_of(layout, reference(job, 2).workers[0].model, job.seed);
  job.freeze = "";
  const std::vector<Values> all = values_of(layout, reference(job, 2).workers[0].model, job.seed);
  for (std::size_t unit = 0; unit < values.size(); ++unit) {
    CAPTURE(layout.units[unit].name);
    CHECK((values[unit].start == values[unit].end) != layout.units[unit].trained);
    if (layout.units[unit].trained) CHECK(values[unit].end == all[unit].end);
  }
}

TEST_CASE("every way of training is bitwise identical to single; its bytes and memory are as predicted") {
  const auto [model, freeze] = GENERATE(table<const char*, const char*>({{kMlp, "layers.0"},
                                                                         {kMlp, "layers.1"},
                                                                         {kBatchNorm, "layers.2,norms.0"},
                                                                         {kGpt, "root"},
                                                                         {kGpt, "h.0"},
                                                                         {kGpt, "unit.2,unit.4"},
                                                                         {kGpt, "root,h.0"}}));
  JobOptions job = small_job(model, freeze);
  SECTION("plain") {}
  SECTION("clipped") { job.clip_norm = 0.05; }
  SECTION("LAMB, clipped") {
    job.optimizer = "lamb";
    job.clip_norm = 0.05;
  }
  SECTION("micro-batches, two units ahead") {
    job.global_batch = 18;
    job.accumulate = 3;
    job.prefetch = 2;
  }
  SECTION("parameters stay, none ahead, evaluated now and then") {
    job.accumulate = 2;
    job.reshard_after_forward = false;
    job.prefetch = 0;
    job.eval_every = 2;
  }
  SECTION("parameters stay for backward, and not from one batch of an evaluation to the next") {
    job.reshard_after_forward = false;
  }
  SECTION("bf16") { job.precision = "bf16"; }
  SECTION("f16, with steps that are skipped") {
    job.precision = "f16";
    job.loss_scale = "dynamic";
  }
  SECTION("activation checkpointing, small buckets") {
    job.activation_checkpointing = "unit";
    job.bucket_bytes = 1024;
  }
  for (const std::size_t workers : {1, 2, 3}) {
    const JobRun local = reference(job, workers);
    const JobRun owner = job.accumulate > 1 ? reference(job, workers, true) : local;
    for (const Way& way : kWays) {
      CAPTURE(model, freeze, workers, way);
      if (way.strategy == "dp" && std::string(model) == kGpt && workers > 1) continue;  // its samples are texts
      check_all(run_as(job, workers, way), at_owner(way) ? owner : local);
    }
  }
}

TEST_CASE("replicas of groups, and parameters that lie once in a host's memory") {
  const auto [model, freeze] = GENERATE(table<const char*, const char*>(
      {{kMlp, "layers.1"}, {kMlp, "layers.0"}, {kGpt, "root"}, {kGpt, "root,h.0"}, {kGpt, "unit.2,unit.4"}}));
  JobOptions job = small_job(model, freeze);
  SECTION("plain") {}
  SECTION("clipped, micro-batches") {
    job.clip_norm = 0.05;
    job.accumulate = 3;
  }
  SECTION("bf16, small buckets") {
    job.precision = "bf16";
    job.bucket_bytes = 1024;
  }
  const auto check_against = [&](const JobRun& local, const JobRun& owner) {
    for (const char* strategy : {"zero1", "zero2", "zero3"}) {
      CAPTURE(job.model, job.freeze, strategy, job.shard_group, job.share_host_parameters);
      const JobRun run = run_as(job, 4, {strategy});
      CHECK((run.workers[3].model == run.workers[0].model));
      check_all(run, std::string(strategy) == "zero1" ? local : owner);
    }
  };
  const JobRun local = reference(job, 4);
  const JobRun owner = reference(job, 4, true);
  job.shard_group = "2";
  check_against(local, owner);
  job.shard_group = JobOptions().shard_group;
  job.share_host_parameters = true;
  check_all(run_as(job, 4, {"zero3"}), owner);
}

TEST_CASE("bytes and memory are those of what is trained") {
  // Columns: the model, the frozen units, and the first unit whose parameters backward needs.
  const auto [model, freeze, first] = GENERATE(table<const char*, const char*, std::size_t>(
      {{kMlp, "layers.1", 0}, {kMlp, "layers.0,layers.1", 2}, {kGpt, "h.*", 0}, {kGpt, "root,h.0", 3}}));
  const auto n = GENERATE(values<std::size_t>({2, 3}));
  JobOptions job = small_job(model, freeze);
  job.workers = n;
  job.strategy = "zero1";  // a layout for n owners
  const Layout layout = set_up(job).layout();
  std::uint64_t all = 0, trained = 0, backward = 0;  // bytes in f32
  for (std::size_t unit = 0; unit < layout.units.size(); ++unit) {
    const std::uint64_t bytes = 4 * layout.units[unit].elements;
    all += bytes;
    if (layout.units[unit].trained) trained += bytes;
    if (unit >= first || layout.units[unit].name == "root") backward += bytes;  // root's last layer is the last of all
  }
  CHECK(trained < all);
  const auto check_rows = [&](const Way& way, std::uint64_t sent, std::uint64_t received, std::uint64_t p,
                              std::uint64_t g, std::uint64_t o) {
    CAPTURE(job.model, job.freeze, n, way);
    const JobRun run = run_as(job, n, way);
    for (const test::WorkerRun& worker : run.workers) {
      CHECK(worker.sent == run.steps * sent);
      CHECK(worker.received == run.steps * received);
      CHECK(worker.peaks.at(Category::parameters) == p);
      CHECK(worker.peaks.at(Category::gradients) == g);
      CHECK(worker.peaks.at(Category::optimizer) == o);
    }
    for (const auto& peaks : run.server_peaks) {
      CHECK(peaks.at(Category::parameters) == (all + trained) / way.servers);
      CHECK(peaks.at(Category::gradients) == 0);
      CHECK(peaks.at(Category::optimizer) == 2 * trained / way.servers);
    }
    CHECK(run.servers_received ==
          run.server_peaks.size() / std::max<std::size_t>(1, way.servers) * n * run.steps * sent);
  };
  const auto among = [n](std::uint64_t bytes) { return (n - 1) * bytes / n; };
  check_rows({"zero1"}, among(2 * trained), among(2 * trained), all, trained, 2 * trained / n);
  check_rows({"zero2"}, among(2 * trained), among(2 * trained), all, trained / n, 2 * trained / n);
  const std::uint64_t zero3 = among(trained + all + backward);
  check_rows({"zero3"}, zero3, zero3, all / n, trained / n, 2 * trained / n);
  // As many servers as workers: the same layout.
  check_rows({"ps", n}, trained, trained, all, trained, 0);
  check_rows({"ps-zero2", n}, trained, trained, all, 0, 0);
  check_rows({"ps-zero3", n}, trained, all + backward, 0, 0, 0);
}

TEST_CASE("a checkpoint has no state of what is frozen, and is continued with the same units or others") {
  const auto from = GENERATE(values<Way>({{"zero3"}, {"ps", 2}, {"ps", 2, "worker"}, {"ddp"}}));
  const auto to = GENERATE(values<Way>({{"ps-zero3", 2}, {"zero1"}, {"ps", 1}}));
  const auto precision = GENERATE(values({"f32", "bf16"}));
  CAPTURE(from, to, precision);
  JobOptions job = small_job(kGpt, "h.0");
  job.precision = precision;
  const JobRun undisturbed = run_as(job, 2, to);
  const test::TemporaryFolder folder;
  JobOptions saving = job;
  saving.steps = 3;
  saving.checkpoint_every = 3;
  saving.checkpoint_dir = folder.path();
  run_as(saving, 2, from);
  job.resume = folder.file("step-00000003");
  const optim::Checkpoint saved(job.resume);
  CHECK(saved.was_trained("wte.weight"));
  CHECK_FALSE(saved.was_trained("h.0.attn.c_proj.weight"));
  CHECK((run_as(job, 2, to).workers[0].model == undisturbed.workers[0].model));

  job.freeze = "root";  // other units: those of before begin with state of zeros, the same wherever it is kept
  const JobRun others = run_as(job, 2, to);
  CHECK((others.workers[0].model == reference(job, 2).workers[0].model));
  const Layout layout = set_up(job).layout();
  const std::vector<Values> values = values_of(layout, others.workers[0].model, job.seed);
  CHECK(values[1].start != values[1].end);  // h.0, which was frozen
}

TEST_CASE("units are frozen by name, number, what their tensors begin with, and a star") {
  const auto frozen = [](const char* units, const char* list, const char* model = kGpt) {
    JobOptions job = small_job(model, list);
    job.units = units;
    const Layout layout = set_up(job).layout();
    std::string names;
    for (const UnitLayout& unit : layout.units)
      if (!unit.trained) names += (names.empty() ? "" : " ") + unit.name;
    return names;
  };
  CHECK(frozen("layer", "root") == "root");
  CHECK(frozen("layer", "0,3") == "root h.1");
  CHECK(frozen("layer", "h.0") == "h.0 unit.2");  // both halves of the block
  CHECK(frozen("layer", "unit.2") == "unit.2");
  CHECK(frozen("layer", "h.*") == "h.0 unit.2 h.1 unit.4");
  CHECK(frozen("layer", "h.1,root") == "root h.1 unit.4");
  CHECK(frozen("block", "h.0") == "h.0");
  CHECK(frozen("block", "h*") == "h.0 h.1");
  CHECK(frozen("layer", "layers.1", "mlp:4-4-4-4-4-4-4-4-4-4-4-4-5") == "layers.1");  // nor layers.10
  CHECK(frozen("layer", "layers.1*", "mlp:4-4-4-4-4-4-4-4-4-4-4-4-5") == "layers.1 layers.10 layers.11");
  CHECK(frozen("root", "", kMlp).empty());
}

TEST_CASE("what cannot be frozen is a usage error that names the units") {
  const auto refusal = [](const char* list, const char* model = kMlp, const char* units = "layer") {
    JobOptions job = small_job(model, list);
    job.units = units;
    return test::error_of(ErrorKind::usage, [&] { set_up(job); });
  };
  CHECK(refusal("layers.3") ==
        "--freeze layers.3: the model has no unit 'layers.3'; its units: layers.0, layers.1, layers.2");
  CHECK_THAT(refusal("layers.0,3"), Contains("no unit '3'"));
  CHECK_THAT(refusal("layers.0,"), Contains("no unit ''"));
  CHECK_THAT(refusal("ayers.*"), Contains("no unit 'ayers.*'"));
  CHECK(refusal("wte", kGpt) ==
        "--freeze wte: unit 'root' contains 'wte' and other tensors, and can only be frozen as a whole; the units: "
        "root, h.0, unit.2, h.1, unit.4");
  // Half of the block is a unit of that name, and half lies in another.
  CHECK_THAT(refusal("h.0", kGpt, "0+2,1,3,4"), Contains("unit 'root' contains 'h.0' and other tensors"));
  CHECK_THAT(refusal("h.0", kGpt, "root"), Contains("unit 'unit.0' contains 'h.0' and other tensors"));
  CHECK(refusal("layers.*") ==
        "--freeze layers.*: nothing is left to train; the model's units: layers.0, layers.1, layers.2");
  CHECK_THAT(refusal("*"), Contains("nothing is left to train"));
}

TEST_CASE("a layer that does not ask whether its gradient is wanted is told to") {
  const worker::Gradient gradient;
  CHECK_FALSE(gradient.wanted());
  CHECK_FALSE(gradient.written());
  CHECK_THAT(test::error_of(ErrorKind::usage, [&] { gradient.beta(); }), Contains("--freeze") && Contains("wanted"));
}
