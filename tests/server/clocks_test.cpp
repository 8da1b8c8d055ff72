// Clocks alone: lag, staleness, the slowest worker, workers that leave.
#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/server/clocks.h>
#include <psring/tests/support/shard_cluster.h>
#include <psring/tests/support/values.h>

using namespace psring;
using server::Clocks;
using server::ShardOptions;
using server::Store;

namespace {

struct Scene {
  Scene(const char* consistency, std::uint32_t workers, std::uint64_t first_version = 0)
      : options{.workers = workers, .consistency = parse_consistency(consistency), .first_version = first_version} {
    store.open({test::small_layout(1)});
    clocks.open(std::vector<bool>(store.pieces().size(), true));
    version = first_version;
  }

  /// A push of the worker, applied.
  void push(std::size_t worker) {
    clocks.count_push(0, worker, version);
    CHECK(clocks.push_being_applied(0) == worker);
    ++version;
    clocks.finish(0);
    CHECK_FALSE(clocks.push_being_applied(0));
  }

  ShardOptions options;
  MemoryLedger ledger;
  Store store{options, ledger};
  Clocks clocks{options, options.consistency};
  std::uint64_t version = 0;
};

}  // namespace

TEST_CASE("under bsp the version takes the clocks' place") {
  Scene scene("bsp", 2);
  CHECK_FALSE(scene.clocks.each_push_updates(0));
  CHECK(scene.clocks.due(0, 1, 7) == 7);
  CHECK(scene.clocks.slowest(0, 7) == 7);
  CHECK(scene.clocks.last(0, 0).staleness == 0);
}

TEST_CASE("staleness counts others' updates since the worker's values, lag its distance to the slowest") {
  Scene scene("asp", 3, 10);
  CHECK(scene.clocks.due(0, 0, scene.version) == 10);
  scene.push(0);
  CHECK(scene.clocks.last(0, 0).staleness == 0);
  scene.push(1);
  CHECK(scene.clocks.last(0, 1).staleness == 1);
  CHECK(scene.clocks.last(0, 1).lag == 0);
  scene.clocks.set_sent(0, 0, scene.version);
  scene.push(0);
  CHECK(scene.clocks.last(0, 0).staleness == 0);
  CHECK(scene.clocks.last(0, 0).lag == 1);
  CHECK(scene.clocks.due(0, 0, scene.version) == 12);
  CHECK(scene.clocks.due(0, 1, scene.version) == 11);
  CHECK(scene.clocks.slowest(0, scene.version) == 10);
  CHECK(scene.clocks.slowest(1, scene.version) == 10);  // other pieces have clocks of their own
  const auto& records = scene.clocks.records();
  CHECK(records[0].updates == 2);
  CHECK(records[0].most_lag == 1);
  CHECK(records[1].sum == 1);
}

TEST_CASE("nobody waits for a worker that has left, and nothing is counted after that") {
  Scene scene("ssp:1", 2);
  scene.push(0);
  CHECK(scene.clocks.slowest(0, scene.version) == 0);
  scene.clocks.leave(1);
  CHECK(scene.clocks.has_left(1));
  CHECK(scene.clocks.slowest(0, scene.version) == 1);
  scene.push(0);
  CHECK(scene.clocks.records()[0].updates == 1);
  scene.clocks.leave(0);
  CHECK(scene.clocks.slowest(0, scene.version) == kFinalVersion);
}

TEST_CASE("a worker further ahead than ssp's bound is a bug of the server") {
  Scene scene("ssp:1", 2);
  scene.push(0);
  scene.push(0);
  CHECK_THAT(test::error_of(ErrorKind::bug, [&] { scene.push(0); }), Catch::Contains("worker 0 is 2 steps ahead"));
}
