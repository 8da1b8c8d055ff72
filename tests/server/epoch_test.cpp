// A job is cut between any two of its frames, all links are new, and it ends with the same bits.
#include <limits>
#include <ostream>

#include <catch2/catch.hpp>

#include <psring/tests/support/cut_job.h>
#include <psring/tests/support/values.h>

using namespace psring;
using test::CutJob;
using test::CutRules;

namespace {

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

struct Case {
  const char* what;
  CutRules rules;
};

CutRules rules_of(const char* optimizer, std::size_t workers, std::size_t servers) {
  CutRules rules;
  rules.shards = {.servers = servers, .workers = workers, .optimizer = optimizer};
  return rules;
}

std::vector<Case> cases() {
  std::vector<Case> all{{"sgd", rules_of("sgd", 2, 2)}, {"momentum", rules_of("momentum", 3, 2)}};
  all.push_back({"adam, clipped", rules_of("adam", 2, 2)});
  all.back().rules.shards.clip_norm = 0.5;
  all.push_back({"momentum, clipped, three servers", rules_of("momentum", 2, 3)});
  all.back().rules.shards.clip_norm = 0.5;
  all.push_back({"adam, two micro-batches", rules_of("adam", 3, 2)});
  all.back().rules.micros = 2;
  all.back().rules.push_pull = false;
  all.push_back({"momentum, two micro-batches, clipped", rules_of("momentum", 2, 2)});
  all.back().rules.micros = 2;
  all.back().rules.push_pull = false;
  all.back().rules.shards.clip_norm = 0.5;
  all.push_back({"adam, a loss scale that moves", rules_of("adam", 2, 2)});
  all.back().rules.shards.loss_scale = "dynamic";
  for (const char* rule : {"sgd", "rowwise-adagrad", "ftrl"}) {
    all.push_back({"a table", rules_of("adam", 2, 2)});
    all.back().rules.tables = all.back().rules.shards.keeps_old_rows = true;
    all.back().rules.shards.table_optimizer = rule;
    all.push_back(all.back());
    all.back().what = "a table whose rows are pulled ahead";
    all.back().rules.lookahead = true;
  }
  all.push_back({"pushes and pulls apart", rules_of("momentum", 2, 2)});
  all.back().rules.push_pull = false;
  return all;
}

struct Ending {
  std::vector<float> parameters;
  std::size_t frames = 0;
};

Ending without_cut(const CutRules& rules) {
  CutJob job(rules);
  const std::size_t frames = job.run(kAll);
  return {job.parameters(), frames};
}

/// Checks that the job ends, that all steps were made once, and that no shard used a lost worker's memory.
void check_ends_as(CutJob& job, const CutRules& rules, const Ending& expected) {
  job.run(kAll);
  REQUIRE(job.done());
  CHECK((job.parameters() == expected.parameters));
  CHECK_FALSE(job.knows_the_dead());
  for (std::size_t rank = 0; rank < rules.shards.servers; ++rank) CHECK(job.shard(rank).version() == rules.steps);
}

}  // namespace

TEST_CASE("cut after any frame, a job ends with the same bits") {
  for (const Case& c : cases()) {
    const Ending expected = without_cut(c.rules);
    for (const std::uint64_t seed : {1, 2, 3}) {
      CutRules rules = c.rules;
      rules.seed = seed;
      const std::size_t frames = without_cut(rules).frames;
      REQUIRE(frames > 40);
      for (std::size_t k = 0; k <= frames; ++k) {
        CAPTURE(c.what, seed, k);
        CutJob job(rules);
        job.run(k);
        job.cut();
        CHECK_FALSE(job.knows_the_dead());
        check_ends_as(job, rules, expected);
      }
    }
  }
}

TEST_CASE("after the loss of a worker, servers go on as new ones with their state and as many workers") {
  for (const Case& c : cases()) {
    for (const std::uint64_t seed : {1, 2}) {
      CutRules rules = c.rules;
      rules.shards.workers = 3;
      rules.seed = seed;
      CutRules fewer = rules;
      fewer.shards.workers = 2;
      const std::size_t frames = without_cut(rules).frames;
      for (std::size_t k = 0; k <= frames; ++k) {
        CAPTURE(c.what, seed, k);
        CutJob job(rules);
        job.run(k);
        job.cut(net::Peer{net::Role::worker, 2});
        CutJob fresh(fewer);
        fresh.begin_with(job);
        fresh.run(kAll);
        REQUIRE(fresh.done());
        check_ends_as(job, fewer, {fresh.parameters(), 0});
        for (std::size_t rank = 0; rank < rules.shards.servers; ++rank)
          CHECK(job.shard(rank).staleness().size() == 3);  // of all workers that the job began with
      }
    }
  }
}

TEST_CASE("rows that are pulled ahead have the same bits") {
  for (const Case& c : cases()) {
    if (!c.rules.lookahead) continue;
    CutRules plain = c.rules;
    plain.lookahead = false;
    const std::vector<float> expected = without_cut(plain).parameters;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      CAPTURE(seed);
      CutRules rules = c.rules;
      rules.seed = seed;
      CHECK((without_cut(rules).parameters == expected));
    }
  }
}

TEST_CASE("cut again and again") {
  for (const Case& c : cases()) {
    const Ending expected = without_cut(c.rules);
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      CAPTURE(c.what, seed);
      CutRules rules = c.rules;
      rules.seed = seed;
      CutJob job(rules);
      std::mt19937_64 random(seed);
      for (int cuts = 0; cuts < 6; ++cuts) {
        job.run(random() % expected.frames);
        job.cut();
      }
      check_ends_as(job, rules, expected);
    }
  }
}

TEST_CASE("shards at different versions: workers go on from the least") {
  for (const Case& c : cases()) {
    bool differed = false;
    for (std::uint64_t seed = 1; seed <= 20 && !differed; ++seed) {
      CutRules rules = c.rules;
      rules.seed = seed;
      CutJob job(rules);
      while (!job.done() && !differed) {
        job.run(1);
        for (std::size_t rank = 1; rank < rules.shards.servers; ++rank)
          differed = differed || job.shard(rank).version() != job.shard(0).version();
      }
      if (!differed) continue;
      std::uint64_t least = rules.steps;
      for (std::size_t rank = 0; rank < rules.shards.servers; ++rank)
        least = std::min(least, job.shard(rank).version());
      job.cut();
      job.run(kAll);
      for (std::size_t worker = 0; worker < rules.shards.workers; ++worker) CHECK(job.first_step_of(worker) == least);
    }
    CAPTURE(c.what);
    CHECK(differed);
  }
}
