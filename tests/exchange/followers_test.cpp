// Jobs whose servers have followers, over all links: the same bits, the bytes and the memory that are predicted.
#include <ostream>

#include <catch2/catch.hpp>

#include <psring/tests/support/in_process_job.h>

using namespace psring;
using test::JobRun;
using test::Links;
using test::run_job;

namespace {

JobOptions small_job(const char* strategy) {
  JobOptions job = test::small_job("gpt:layers=3,dim=16,heads=2,context=8,vocab=31", 7);
  job.strategy = strategy;
  job.workers = 3;
  job.servers = 2;
  job.placement = "standalone";
  return job;
}

}  // namespace

TEST_CASE("a job with followers: bits, bytes, memory, and what followers have") {
  const auto links = GENERATE(values({Links::in_process, Links::shm, Links::tcp, Links::tcp_encrypted}));
  const auto strategy = GENERATE(values({"ps", "ps-zero2", "ps-zero3"}));
  JobOptions job = small_job(strategy);
  SECTION("plain") {}
  SECTION("clipped") { job.clip_norm = 0.05; }
  SECTION("micro-batches") {
    job.global_batch = 24;
    job.accumulate = 2;
  }
  SECTION("compressed") {
    job.compress = "int8";
    job.error_feedback = false;
  }
  SECTION("f16") {
    job.precision = "f16";
    job.loss_scale = "dynamic";
  }
  CAPTURE(int(links), strategy);
  const JobRun alone = run_job(job, links);
  const JobRun made = run_job(job, links, nullptr, {0}, true);
  CHECK((made.workers[0].model == alone.workers[0].model));
  CHECK(made.servers_received == alone.servers_received);
  CHECK(made.servers_sent == alone.servers_sent);
  CHECK_FALSE(alone.predicted.server_replicates);
  CHECK(made.servers_replicated == made.steps * made.predicted.server_replicates.value());
  CHECK(made.servers_replicated == made.servers_received);
  REQUIRE(made.server_peaks.size() == 4);
  for (const auto& peaks : made.server_peaks)
    for (const auto& [category, bytes] : made.predicted.server_memory)
      if (category != Category::communication) CHECK(peaks.at(category) == bytes);  // a follower copies what it keeps
  REQUIRE(made.server_states.size() == 4);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CHECK_FALSE(made.server_states[rank].empty());
    CHECK((made.server_states[rank] == made.server_states[rank + 2]));
  }
}
