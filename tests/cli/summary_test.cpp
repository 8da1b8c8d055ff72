// The summary of a run, from made-up reports of its roles.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <psring/cli/train/summary.h>
#include <psring/tests/support/temporary_folder.h>

using namespace psring;
using namespace psring::cli;
using OrderedJson = nlohmann::ordered_json;

namespace {

constexpr std::uint64_t kPredicted = 400;

/// Writes the report of a worker that made `steps` steps, and booked at most `peak` bytes of gradients. The strategy
/// predicts kPredicted bytes.
void write_worker(const test::TemporaryFolder& folder, std::size_t rank, std::uint64_t steps, std::uint64_t peak) {
  const OrderedJson times = {{"p10", 0.0}, {"median", 0.0}, {"p90", 0.0}};
  const OrderedJson report = {{"predicted", {{"worker_memory", {{"gradients", kPredicted}}}}},
                              {"memory", {{"gradients", {{"peak", peak}}}}},
                              {"steps", steps},
                              {"skipped_steps", 0},
                              {"samples", 8 * steps},
                              {"seconds", 1.0},
                              {"exposed_comm_s", 0.0},
                              {"step_s", times},
                              {"exposed_step_s", times},
                              {"busy_step_s", times},
                              {"final_loss", 0.5},
                              {"final_samples", 8},
                              {"test", {{"loss_sum", 0.0}, {"rows", 0}}}};
  test::write_file(folder.file("reports/worker-" + std::to_string(rank) + ".json"), report.dump());
}

/// Returns the summary of two workers: worker 0 made 5 steps as predicted, worker 1 made `steps` and booked `peak`.
Summary summary_of(std::uint64_t steps, std::uint64_t peak) {
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("reports"));
  write_worker(folder, 0, 5, kPredicted);
  write_worker(folder, 1, steps, peak);
  JobOptions job;
  job.workers = 2;
  job.servers = 0;
  const App app;
  const Output output;
  return summarise(folder.path(), job, {.app = app, .words = {}, .output = output});
}

}  // namespace

TEST_CASE("a worker that made no step is not compared with the memory of a step") {
  const Summary late = summary_of(0, 0);  // it came too late for every update (--backup-workers)
  CHECK(late.ok());
  REQUIRE(late.memory.size() == 2);
  CHECK(late.memory[0].predicted == kPredicted);
  CHECK(late.memory[1].role == "worker 1");
  CHECK_FALSE(late.memory[1].predicted);
}

TEST_CASE("a worker that made steps has to book the memory that was predicted") {
  CHECK(summary_of(5, kPredicted).ok());
  CHECK_FALSE(summary_of(5, kPredicted - 100).ok());
  CHECK_FALSE(summary_of(1, kPredicted + 100).ok());
}
