// The rows of a shard: keys once, gradients in the order of the pull, versions, memory.
#include <algorithm>
#include <cmath>
#include <random>

#include <catch2/catch.hpp>
#include <malloc.h>

#include <psring/server/table_shard.h>
#include <psring/tests/server/row_frames.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::net;
using namespace psring::test;
using Catch::Contains;

TEST_CASE("rows are answered in the order of the keys, and updated once all workers have pushed") {
  ShardCluster cluster({.workers = 2, .lr = 0.5});
  cluster.open(layout_of(1));
  const std::vector<std::uint64_t> a{key_in(5), key_in(900)};
  const std::vector<std::uint64_t> b{key_in(900), key_in(901, 7)};
  const auto rows = cluster.send(0, pull(0, 0, kAll, a));
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].header.type == FrameType::rows);
  CHECK(rows[0].header.version == 0);
  const std::vector<float> first = initial(a[0]);
  const std::vector<float> second = initial(a[1]);
  CHECK(rows[0].values() == std::vector<float>{first[0], first[1], second[0], second[1]});
  CHECK(cluster.send(0, pull(1, 0, kAll, b)).size() == 1);
  CHECK(cluster.send(0, push(0, 0, kAll, {1, 2, 3, 4})).empty());
  CHECK(cluster.shard(0).tables().rows() == 0);
  CHECK(cluster.send(0, pull(0, 1, kAll, {a[1]})).empty());  // waits for the update
  const auto answers = cluster.send(0, push(1, 0, kAll, {5, 6, 7, 8}));
  REQUIRE(answers.size() == 3);
  CHECK(answers[0].header.type == FrameType::rows_ack);
  CHECK(answers[0].to.rank == 0);
  CHECK(answers[1].to.rank == 1);
  CHECK(answers[2].header.type == FrameType::rows);
  CHECK(answers[2].header.version == 1);
  CHECK(answers[2].values() == std::vector<float>{std::fma(-0.5F, (3.0F + 5.0F) * 0.5F, second[0]),
                                                  std::fma(-0.5F, (4.0F + 6.0F) * 0.5F, second[1])});
  CHECK(cluster.shard(0).tables().rows() == 3);
  CHECK(*cluster.shard(0).tables().version() == 1);
  CHECK_THAT(cluster.shard(0).describe(), Contains("3 rows of tables"));
}

TEST_CASE("a worker without keys pushes an empty frame") {
  ShardCluster cluster({.workers = 2});
  cluster.open(layout_of(1));
  const auto rows = cluster.send(0, pull(0, 0, kAll, {}));
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].payload.empty());
  CHECK(cluster.send(0, pull(1, 0, kAll, {key_in(1)})).size() == 1);
  CHECK(cluster.send(0, push(1, 0, kAll, {1, 1})).empty());
  CHECK(cluster.send(0, push(0, 0, kAll, {})).size() == 2);
  CHECK(*cluster.shard(0).tables().version() == 1);
}

TEST_CASE("a pull in several frames, and a push that is repeated") {
  ShardCluster cluster({.workers = 1});
  cluster.open(layout_of(1));
  const Range low{0, 512};
  const Range high{512, kBuckets};
  CHECK(cluster.send(0, pull(0, 0, low, {key_in(1)})).size() == 1);
  CHECK(cluster.send(0, pull(0, 0, high, {key_in(600)})).size() == 1);
  CHECK(cluster.send(0, push(0, 0, high, {1, 1})).empty());
  CHECK(cluster.send(0, push(0, 0, high, {1, 1})).empty());  // waits here
  CHECK(cluster.send(0, push(0, 0, low, {1, 1})).size() == 2);
  const auto again = cluster.send(0, push(0, 0, low, {1, 1}));
  REQUIRE(again.size() == 1);
  CHECK(again[0].header.type == FrameType::rows_ack);
  CHECK(*cluster.shard(0).tables().version() == 1);
}

TEST_CASE("reading leaves no keys behind") {
  ShardCluster cluster({.workers = 1});
  cluster.open(layout_of(1));
  for (std::uint64_t chunk = 0; chunk < 20; ++chunk) {
    Frame frame = pull(0, 0, kAll, {key_in(1), key_in(2), key_in(3), key_in(4), key_in(5)});
    frame.header.flags = FrameHeader::kStartUp;
    frame.header.step = chunk;
    const auto rows = cluster.send(0, frame);
    REQUIRE(rows.size() == 1);
    REQUIRE(rows[0].header.type == FrameType::rows);
  }
  CHECK(cluster.shard(0).tables().rows() == 0);
  CHECK(cluster.send(0, pull(0, 0, kAll, {key_in(1)})).size() == 1);
}

TEST_CASE("the order of frames does not change rows") {
  const Layout layout = layout_of(2, 2);
  std::vector<std::vector<float>> seen;
  for (const std::uint64_t order : {1, 2, 3}) {
    ShardCluster cluster({.servers = 2, .workers = 2, .table_optimizer = "adagrad"});
    cluster.open(layout);
    std::mt19937_64 random(order);
    for (std::uint64_t step = 0; step < 3; ++step) {
      struct Send {
        std::size_t server;
        Frame pull;
        Frame push;
      };
      std::vector<Send> frames;
      for (std::uint32_t worker = 0; worker < 2; ++worker)
        for (std::size_t server = 0; server < 2; ++server)
          for (std::size_t piece = 0; piece < 2; ++piece) {
            const Range buckets = table_piece(table_buckets(2, server), 2, piece);
            const std::vector<std::uint64_t> keys{key_in(buckets.begin + worker), key_in(buckets.begin + 9)};
            frames.push_back(
                {server, pull(worker, step, buckets, keys),
                 push(worker, step, buckets, test::normal_values(4, step * 10 + worker * 4 + server * 2 + piece))});
          }
      std::shuffle(frames.begin(), frames.end(), random);
      for (const Send& send : frames) REQUIRE(cluster.send(send.server, send.pull)[0].header.type == FrameType::rows);
      std::shuffle(frames.begin(), frames.end(), random);
      for (const Send& send : frames)
        for (const Reply& reply : cluster.send(send.server, send.push))
          REQUIRE(reply.header.type == FrameType::rows_ack);
    }
    std::vector<float> values;
    for (std::size_t server = 0; server < 2; ++server) {
      const std::size_t begin = table_buckets(2, server).begin;
      const Range buckets = table_piece(table_buckets(2, server), 2, 0);
      Frame read = pull(0, 3, buckets, {key_in(begin), key_in(begin + 1), key_in(begin + 9)});
      read.header.flags = FrameHeader::kStartUp;
      const std::vector<float> rows = cluster.send(server, read)[0].values();
      values.insert(values.end(), rows.begin(), rows.end());
    }
    seen.push_back(values);
  }
  CHECK(seen[0] == seen[1]);
  CHECK(seen[0] == seen[2]);
}

TEST_CASE("occurrences travel behind the keys where a rule counts them") {
  ShardCluster cluster({.workers = 1, .row_rules = {.admit = 3}});
  cluster.open(layout_of(1));
  const auto counted = [](std::uint64_t step, const std::vector<std::uint64_t>& keys,
                          const std::vector<std::uint32_t>& counts) {
    Frame frame = pull(0, step, kAll, keys);
    const auto bytes = std::as_bytes(std::span(counts));
    frame.payload.insert(frame.payload.end(), bytes.begin(), bytes.end());
    return frame;
  };
  const auto refused = [&](const Frame& frame) { return cluster.send(0, frame)[0].text(); };
  CHECK_THAT(refused(pull(0, 0, kAll, {key_in(1)})), Contains("a pull of 8 bytes of keys"));
  CHECK_THAT(refused(counted(0, {key_in(1), key_in(2)}, {1, 0})), Contains("a key that occurs 0 times"));
  CHECK_THAT(refused(counted(0, {key_in(1)}, {1, 1})), Contains("a pull of 16 bytes of keys"));
  CHECK(cluster.send(0, counted(0, {key_in(1), key_in(2)}, {2, 3})).size() == 1);
  CHECK(cluster.send(0, push(0, 0, kAll, {1, 1, 1, 1})).size() == 1);
  CHECK(cluster.shard(0).tables().rows() == 1);
  Frame read = pull(0, 1, kAll, {key_in(1), key_in(2)});  // without occurrences
  read.header.flags = FrameHeader::kStartUp;
  read.header.step = 0;
  const std::vector<float> values = cluster.send(0, read)[0].values();
  CHECK(std::vector<float>(values.begin(), values.begin() + 2) == initial(key_in(1)));
  CHECK(cluster.send(0, counted(1, {key_in(1)}, {1})).size() == 1);
  CHECK(cluster.send(0, push(0, 1, kAll, {1, 1})).size() == 1);
  CHECK(cluster.shard(0).tables().rows() == 2);
}

TEST_CASE("the bookkeeping of pieces takes no more memory than a server expects") {
  constexpr std::size_t kPieces = 64;
  constexpr std::uint32_t kWorkers = 4;
  Layout layout = layout_of(1, kPieces);
  layout.tables[0].most_keys = kPieces;
  const std::size_t expected = kPieces * server::TableShard::piece_bytes(layout.tables[0], kWorkers);
  ShardCluster cluster({.workers = kWorkers});
  ShardCluster other({.workers = kWorkers});
  Layout single = layout_of(1);
  single.tables[0].most_keys = kPieces;
  const std::size_t start = ::mallinfo2().uordblks;
  other.open(single);
  const std::size_t one_piece = ::mallinfo2().uordblks - start;
  const std::size_t before = ::mallinfo2().uordblks;
  cluster.open(layout);
  for (std::uint64_t step = 0; step < 2; ++step)
    for (std::uint32_t worker = 0; worker < kWorkers; ++worker)
      for (std::size_t piece = 0; piece < kPieces; ++piece) {
        const Range buckets = table_piece(kAll, kPieces, piece);
        cluster.send(0, pull(worker, step, buckets, {key_in(buckets.begin)}));
      }
  const std::size_t taken = ::mallinfo2().uordblks - before;
  if (taken == 0) return;                                    // a sanitizer's memory is not counted
  const std::size_t keys = 2 * kWorkers * kPieces * 2 * 32;  // and their places: an allocation has 32 bytes at least
  CAPTURE(expected, taken, one_piece);
  CHECK(taken <= expected + one_piece + keys);
  CHECK(expected <= 2 * taken);
}
