// Rounds alone: which pushes are there, and when a micro-batch is complete.
#include <catch2/catch.hpp>

#include <psring/server/rounds.h>
#include <psring/tests/support/shard_cluster.h>

using namespace psring;
using server::Rounds;
using server::ShardOptions;
using server::Store;

namespace {

struct Scene {
  Scene(ShardOptions given, std::size_t micros) : options(std::move(given)) {
    options.optimizer = rule.get();
    Layout layout = test::small_layout(1);
    layout.pushes = micros;
    layout.units[1].trained = false;
    store.open({layout});
    rounds.open(store);
  }

  void push(std::uint32_t worker, std::uint32_t micro = 0) {
    net::Message message{};
    message.header.sender_rank = worker;
    message.header.micro = micro;
    message.header.set_range({0, values.size()});
    message.payload = std::as_bytes(std::span(values[worker]));
    rounds.take(0, std::move(message));
  }

  std::unique_ptr<optim::Optimizer> rule = test::make_rule("sgd");
  ShardOptions options;
  MemoryLedger ledger;
  Store store{options, ledger};
  Rounds rounds{options};
  std::vector<std::vector<float>> values = {{0, 0, 0}, {1, 1, 1}, {2, 2, 2}};
};

}  // namespace

TEST_CASE("a micro-batch is complete with the pushes of all workers, in their order") {
  Scene scene({.workers = 3}, 1);
  for (const std::uint32_t worker : {2, 0}) {
    CHECK_FALSE(scene.rounds.has(0, 0, worker));
    scene.push(worker);
    CHECK(scene.rounds.has(0, 0, worker));
    CHECK_FALSE(scene.rounds.micro_complete(0, 0));
  }
  CHECK_FALSE(scene.rounds.empty(0));
  scene.push(1);
  CHECK(scene.rounds.micro_complete(0, 0));
  const auto pushes = scene.rounds.pushes(0);
  REQUIRE(pushes.size() == 3);
  for (std::uint32_t worker = 0; worker < 3; ++worker) {
    CHECK(pushes[worker]->header.sender_rank == worker);
    CHECK(pushes[worker]->payload.data() == std::as_bytes(std::span(scene.values[worker])).data());
    CHECK(scene.rounds.waits(0, 0, worker));
  }
  scene.rounds.finish(0);
  CHECK(scene.rounds.empty(0));
  CHECK_FALSE(scene.rounds.has(0, 0, 1));
  CHECK_FALSE(scene.rounds.micro_complete(0, 1));
}

TEST_CASE("micro-batches are completed in order, and one that was added up counts as taken") {
  Scene scene({.workers = 2}, 2);
  CHECK(scene.rounds.micros() == 2);
  scene.push(0, 1);
  scene.push(1, 1);
  CHECK_FALSE(scene.rounds.micro_complete(0, 0));
  scene.push(0, 0);
  scene.push(1, 0);
  for (std::size_t micro = 0; micro < 2; ++micro) {
    REQUIRE(scene.rounds.micro_complete(0, 0));
    CHECK(scene.rounds.micro(0) == micro);
    scene.rounds.finish_micro(0);
    CHECK(scene.rounds.has(0, micro, 0));
    CHECK_FALSE(scene.rounds.waits(0, micro, 0));
  }
  CHECK(scene.rounds.all_complete(0));
  CHECK_FALSE(scene.rounds.micro_complete(0, 0));
  scene.rounds.finish(0);
  CHECK(scene.rounds.micro(0) == 0);
  CHECK_FALSE(scene.rounds.has(0, 0, 0));
}

TEST_CASE("with backup workers the first pushes are enough, unless worker 0 has to save first") {
  ShardOptions options{.workers = 3, .save_every = 2};
  options.consistency = parse_consistency("bsp", 1);
  Scene scene(options, 1);
  scene.push(1);
  CHECK_FALSE(scene.rounds.micro_complete(0, 1));
  scene.push(2);
  CHECK(scene.rounds.micro_complete(0, 1));
  CHECK_FALSE(scene.rounds.micro_complete(0, 2));  // version 2 is saved
  scene.push(0);
  CHECK(scene.rounds.micro_complete(0, 2));
}

TEST_CASE("with --local-reduce one push for each host is enough") {
  Scene scene({.workers = 3, .pushers = 1}, 1);
  scene.push(2);
  CHECK(scene.rounds.micro_complete(0, 0));
}

TEST_CASE("a new epoch forgets all pushes, and may have fewer workers") {
  Scene scene({.workers = 3}, 1);
  scene.push(0);
  scene.options.workers = 2;
  scene.rounds.begin_epoch();
  CHECK(scene.rounds.empty(0));
  scene.push(0);
  scene.push(1);
  CHECK(scene.rounds.micro_complete(0, 0));
}

TEST_CASE("complete pieces are counted until all trained ones are there, and again") {
  Layout layout = test::small_layout(1);
  MemoryLedger ledger;
  ShardOptions options;
  Store store(options, ledger);
  store.open({layout});
  Rounds rounds(options);
  rounds.open(store);
  REQUIRE(store.trained_pieces() == 2);
  for (int step = 0; step < 2; ++step) {
    CHECK_FALSE(rounds.count_complete_piece());
    CHECK(rounds.count_complete_piece());
  }
}
