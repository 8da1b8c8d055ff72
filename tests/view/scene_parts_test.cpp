#include <cstddef>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/ring/link/plans.h>
#include <psring/ring/plan/tuning.h>
#include <psring/view/step/collective_plans.h>
#include <psring/view/step/scene_sources.h>

using namespace psring;
using ring::Action;
using ring::Collective;
using view::PlanMessage;

namespace {

using Values = std::vector<std::vector<long>>;  // by rank and element

/// A number for each rank and element, so that a wrong sum or a wrong copy shows.
Values initial_values(std::size_t ranks, std::size_t count) {
  Values values(ranks, std::vector<long>(count));
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (std::size_t i = 0; i < count; ++i) values[rank][i] = (1L << (4 * rank)) + static_cast<long>(i % 3);
  return values;
}

/// Moves the values as docs/scene.md says: all messages of a round carry the values from before the round.
Values moved(const std::vector<PlanMessage>& messages, Values values) {
  for (std::size_t begin = 0, end = 0; begin < messages.size(); begin = end) {
    const Values before = values;
    for (; end < messages.size() && messages[end].round == messages[begin].round; ++end) {
      const PlanMessage& message = messages[end];
      for (std::size_t i = message.range.begin; i < message.range.end; ++i) {
        long& at = values[message.to][i];
        const long sent = before[message.from][i];
        at = message.action == Action::Kind::receive ? sent : at + sent;
      }
    }
  }
  return values;
}

std::vector<PlanMessage> messages_of(const ring::Request& request, std::size_t ranks, const ring::Algorithm& algorithm,
                                     std::size_t segment_bytes) {
  ring::LinkOptions options;
  options.tuning = ring::Tuning::built_in();
  options.algorithm = algorithm;
  options.segment_bytes = segment_bytes;
  std::vector<ring::Plan> plans;
  for (std::size_t rank = 0; rank < ranks; ++rank) plans.push_back(ring::LinkPlans(options, rank, ranks).plan(request));
  return view::messages_of(plans);
}

constexpr std::size_t kCount = 37;
constexpr std::size_t kSegments[] = {16, std::size_t{1} << 40};

ring::Request request_of(Collective collective, const ring::Parts* parts = nullptr, std::uint32_t root = 0) {
  return {.call = {.collective = collective, .type = {DType::f32}, .root = root, .count = kCount}, .parts = parts};
}

}  // namespace

TEST_CASE("the rounds of every all-reduce give every rank the sum") {
  for (const ring::Algorithm* algorithm : ring::kAlgorithms)
    for (const std::size_t segment : kSegments)
      for (std::size_t ranks = 2; ranks <= 9; ++ranks) {
        CAPTURE(algorithm->name, segment, ranks);
        const Values first = initial_values(ranks, kCount);
        const Values last = moved(messages_of(request_of(Collective::all_reduce), ranks, *algorithm, segment), first);
        for (std::size_t rank = 0; rank < ranks; ++rank)
          for (std::size_t i = 0; i < kCount; ++i) {
            long sum = 0;
            for (const auto& of_rank : first) sum += of_rank[i];
            REQUIRE(last[rank][i] == sum);
          }
      }
}

TEST_CASE("the rounds of the other collectives move what they say") {
  for (const ring::Algorithm* algorithm : {&ring::Algorithm::exchange, &ring::Algorithm::ring})
    for (const std::size_t segment : kSegments)
      for (std::size_t ranks = 2; ranks <= 6; ++ranks) {
        CAPTURE(algorithm->name, segment, ranks);
        const Values first = initial_values(ranks, kCount);
        const ring::Parts parts = ring::even_parts(kCount, ranks);
        const auto result = [&](const ring::Request& request) {
          return moved(messages_of(request, ranks, *algorithm, segment), first);
        };
        const Values scattered = result(request_of(Collective::reduce_scatter, &parts));
        const Values gathered = result(request_of(Collective::all_gather, &parts));
        const Values sent = result(request_of(Collective::broadcast, nullptr, static_cast<std::uint32_t>(ranks - 1)));
        for (std::size_t owner = 0; owner < ranks; ++owner)
          for (std::size_t i = parts[owner][0].begin; i < parts[owner][0].end; ++i) {
            long sum = 0;
            for (const auto& of_rank : first) sum += of_rank[i];
            REQUIRE(scattered[owner][i] == sum);
            for (std::size_t rank = 0; rank < ranks; ++rank) {
              REQUIRE(gathered[rank][i] == first[owner][i]);
              REQUIRE(sent[rank][i] == first[ranks - 1][i]);
            }
          }
      }
}

TEST_CASE("a ring takes 2 (n - 1) rounds, and direct exchange one") {
  const auto rounds = [](const ring::Algorithm& algorithm) {
    return messages_of(request_of(Collective::all_reduce), 4, algorithm, std::size_t{1} << 40).back().round + 1;
  };
  CHECK(rounds(ring::Algorithm::ring) == 6);
  CHECK(rounds(ring::Algorithm::exchange) == 1);
  CHECK(rounds(ring::Algorithm::doubling) == 2);
  CHECK(rounds(ring::Algorithm::halving_doubling) == 4);
  CHECK(rounds(ring::Algorithm::star) == 2);
}

TEST_CASE("paths begin at the repository's root") {
  CHECK(view::repository_path("/home/a/psring/worker/walk.cpp") == "worker/walk.cpp");
  CHECK(view::repository_path("/a/worker/psring/build/include/psring/worker/exchange/workers/workers.h") ==
        "worker/exchange/workers/workers.h");
  CHECK(view::repository_path("/a/psring/ring/plan/ring.cpp") == "ring/plan/ring.cpp");
  CHECK(view::repository_path("server/server.cpp") == "server/server.cpp");
}

TEST_CASE("functions have short names") {
  const std::pair<const char*, const char*> names[] = {
      {"void psring::worker::Walk::acquire(std::size_t, psring::worker::Pass)", "Walk::acquire"},
      {"psring::Nanoseconds psring::server::serve(psring::server::Shard&, psring::Events*)", "serve"},
      {"virtual psring::ring::Work psring::worker::{anonymous}::ReduceScatter::start(psring::Range)",
       "ReduceScatter::start"},
      {"virtual void psring::worker::(anonymous namespace)::WorkerSource::fetch(UnitId, Elements, bool)",
       "WorkerSource::fetch"},
      {"psring::worker::Composition::<lambda(psring::Range)>", "Composition"},
      {"psring::worker::PushedGradients::push(psring::worker::UnitId)::<lambda()>", "PushedGradients::push"},
      {"std::map<int, std::pair<a, b> > psring::f(int)", "f"},
      {"auto psring::worker::g(T&&) [with T = std::vector<int>]", "g"},
  };
  for (const auto& [whole, brief] : names) CHECK(view::short_function(whole) == brief);
}
