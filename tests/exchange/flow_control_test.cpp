// Jobs whose messages are smaller and larger than each bounded buffer of a link, over all links, with and without
// followers: none waits for room that does not come.
#include <ostream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/net/shm/link.h>
#include <psring/tests/support/in_process_job.h>

using namespace psring;
using test::Links;
using test::run_job;

namespace {

/// The buffers of a link in bytes: shared memory's bounce region; of sockets, and of senders with priorities, the
/// window.
std::size_t buffer_of(Links links) { return links == Links::shm ? net::ShmLink::kBounceBytes : net::kWindowBytes; }
/// A link's buffers, in frames: the entries of shared memory, and ZeroMQ's high-water mark.
constexpr std::size_t kFrames = net::ShmLink::kEntries;

/// Gradients of about this size, of a model that computes quickly: one layer of several pieces between two small ones.
JobOptions job_of_bytes(std::size_t bytes) {
  JobOptions job = test::small_job("mlp:2-8-" + std::to_string(bytes / sizeof(float) / 11) + "-2", 2);
  job.global_batch = 2;
  job.op_timeout = 120;  // a wait that does not end fails the test
  return job;
}

/// Gradients of this number of frames to one server: a unit for each layer.
JobOptions job_of_frames(std::size_t frames) {
  std::string model = "mlp:2";
  for (std::size_t layer = 0; layer < frames; ++layer) model += "-2";
  JobOptions job = test::small_job(model, 2);
  job.global_batch = 2;
  job.units = "layer";
  job.op_timeout = 120;
  return job;
}

JobOptions with_servers(JobOptions job, const std::string& strategy) {
  job.strategy = strategy;
  job.workers = 2;
  job.servers = 1;
  job.placement = "standalone";
  return job;
}

}  // namespace

TEST_CASE("pushes and pulls at half, once, twice and four times a link's bytes") {
  const auto links = GENERATE(values({Links::shm, Links::tcp, Links::tcp_encrypted, Links::shaped, Links::in_process}));
  const bool followers = GENERATE(false, true);
  const std::size_t halves = GENERATE(1, 2, 4, 8);
  CAPTURE(int(links), followers, halves);
  const JobOptions job = with_servers(job_of_bytes(buffer_of(links) / 2 * halves), "ps");
  CHECK(run_job(job, links, nullptr, {0}, followers).steps == 2);
}

TEST_CASE("every exchange with servers at twice a link's bytes") {
  const auto links = GENERATE(values({Links::shm, Links::tcp}));
  const bool followers = GENERATE(false, true);
  JobOptions job = with_servers(job_of_bytes(2 * buffer_of(links)), "ps");
  SECTION("ps-zero2") { job.strategy = "ps-zero2"; }
  SECTION("ps-zero3") { job.strategy = "ps-zero3"; }
  SECTION("clipped: the whole step waits for a verdict") { job.clip_norm = 0.5; }
  SECTION("micro-batches") {
    job.global_batch = 4;
    job.accumulate = 2;
  }
  SECTION("compressed: payloads lie outside of the arena") {
    job.compress = "bf16";
    job.error_feedback = false;
  }
  CAPTURE(int(links), followers, job.strategy);
  CHECK(run_job(job, links, nullptr, {0}, followers).steps == 2);
}

TEST_CASE("every other exchange at half, once, twice and four times a link's bytes") {
  const auto links = GENERATE(values({Links::shm, Links::tcp}));
  const auto strategy = GENERATE(values<const char*>({"ps-colocated", "ddp", "zero1", "zero3"}));
  const std::size_t halves = GENERATE(1, 2, 4, 8);
  CAPTURE(int(links), strategy, halves);
  JobOptions job = job_of_bytes(buffer_of(links) / 2 * halves);
  job.strategy = strategy;
  job.workers = 2;
  if (job.strategy == "ps-colocated") {
    job.placement = "colocated";
    job.servers = 2;
  }
  CHECK(run_job(job, links).steps == 2);
}

TEST_CASE("pushes and pulls at half, once, twice and four times a link's frames") {
  const auto links = GENERATE(values({Links::shm, Links::tcp, Links::in_process}));
  const bool followers = GENERATE(false, true);
  const std::size_t halves = GENERATE(1, 2, 4, 8);
  CAPTURE(int(links), followers, halves);
  const JobOptions job = with_servers(job_of_frames(kFrames / 2 * halves), "ps");
  CHECK(run_job(job, links, nullptr, {0}, followers).steps == 2);
}
