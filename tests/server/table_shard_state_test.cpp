// Rows of a shard over epochs: what is read and repeated in a new one, and snapshots for another shard.
#include <cmath>

#include <catch2/catch.hpp>

#include <psring/optim/rows/table_rows.h>
#include <psring/server/table_shard.h>
#include <psring/tests/server/row_frames.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::net;
using namespace psring::test;
using Catch::Contains;

TEST_CASE("in a new epoch the version before the last is read as it was, and its gradients are repeated") {
  ShardCluster cluster({.workers = 1, .lr = 0.5, .table_optimizer = "adagrad", .keeps_old_rows = true});
  cluster.open(layout_of(1));
  const std::vector<std::uint64_t> first{key_in(1), key_in(700)};
  const std::vector<std::uint64_t> second{key_in(1), key_in(2), key_in(800)};
  CHECK(cluster.send(0, pull(0, 0, kAll, first)).size() == 1);
  CHECK(cluster.send(0, push(0, 0, kAll, {1, 2, 3, 4})).size() == 1);
  const std::vector<float> before = cluster.send(0, pull(0, 1, kAll, second))[0].values();
  CHECK(cluster.send(0, push(0, 1, kAll, {1, 1, 2, 2, 3, 3})).size() == 1);
  const auto read = [&](std::uint64_t version) {
    Frame frame = pull(0, version, kAll, second);
    frame.header.flags = FrameHeader::kStartUp;
    return cluster.send(0, frame)[0].values();
  };
  const std::vector<float> after = read(2);
  for (int epoch = 0; epoch < 2; ++epoch) {
    cluster.shard(0).begin_epoch(1);
    CHECK(cluster.shard(0).version() == 0);  // units have had no update
    CHECK_THAT(cluster.send(0, pull(0, 0, kAll, first))[0].text(), Contains("a pull of version 0"));
    CHECK(cluster.send(0, pull(0, 1, kAll, second))[0].values() == before);
    CHECK(read(1) == before);
    const auto again = cluster.send(0, push(0, 1, kAll, {1, 1, 2, 2, 3, 3}));
    REQUIRE(again.size() == 1);
    CHECK(again[0].header.type == FrameType::rows_ack);
    CHECK(cluster.send(0, pull(0, 2, kAll, second))[0].values() == after);
  }
  CHECK(cluster.send(0, push(0, 2, kAll, {1, 1, 2, 2, 3, 3})).size() == 1);
  CHECK(*cluster.shard(0).tables().version() == 3);
  CHECK(read(2) == after);

  ShardCluster without({.workers = 1});
  without.open(layout_of(1));
  CHECK(without.send(0, pull(0, 0, kAll, first)).size() == 1);
  CHECK(without.send(0, push(0, 0, kAll, {1, 2, 3, 4})).size() == 1);
  CHECK_THAT(without.send(0, pull(0, 0, kAll, first))[0].text(), Contains("a pull of version 0"));
}

TEST_CASE("in a new epoch with fewer workers, an update is the mean over those that are left") {
  ShardCluster cluster({.workers = 3, .lr = 0.5, .keeps_old_rows = true});
  cluster.open(layout_of(1));
  const std::vector<std::uint64_t> keys{key_in(5)};
  const auto make_step = [&](std::uint32_t workers, std::uint64_t step) {
    for (std::uint32_t worker = 0; worker < workers; ++worker)
      CHECK(cluster.send(0, pull(worker, step, kAll, keys)).size() == 1);
    for (std::uint32_t worker = 0; worker + 1 < workers; ++worker)
      CHECK(cluster.send(0, push(worker, step, kAll, {1, 3})).empty());
    CHECK(cluster.send(0, push(workers - 1, step, kAll, {1, 3})).size() == workers);
  };
  make_step(3, 0);
  CHECK(cluster.send(0, pull(2, 1, kAll, keys)).size() == 1);  // is lost with its worker
  const std::size_t booked = cluster.communication_bytes();
  cluster.shard(0).begin_epoch(2);
  CHECK(booked - cluster.communication_bytes() >= optim::key_list_bytes(layout_of(1).tables[0], 1, false, true));
  CHECK_THAT(cluster.send(0, pull(2, 1, kAll, keys))[0].text(), Contains("is no worker of this job"));
  make_step(2, 1);
  const std::vector<float> first = initial(keys[0]);
  CHECK(cluster.send(0, pull(0, 2, kAll, keys))[0].values() ==
        std::vector<float>{std::fma(-0.5F, (1.0F + 1.0F) * 0.5F, std::fma(-0.5F, 3.0F * (1.0F / 3.0F), first[0])),
                           std::fma(-0.5F, (3.0F + 3.0F) * 0.5F, std::fma(-0.5F, 9.0F * (1.0F / 3.0F), first[1]))});
}

TEST_CASE("a snapshot has rows, versions, and the rows before; other frames are refused") {
  const test::ShardRules rules{.servers = 2, .workers = 1, .table_optimizer = "adam", .keeps_old_rows = true};
  const Layout layout = layout_of(2, 2);
  ShardCluster cluster(rules);
  cluster.open(layout);
  const Range buckets = table_piece(table_buckets(2, 1), 2, 0);
  const std::vector<std::uint64_t> keys{key_in(buckets.begin), key_in(buckets.begin + 1)};
  for (std::uint64_t step = 0; step < 2; ++step) {
    CHECK(cluster.send(1, pull(0, step, buckets, keys)).size() == 1);
    CHECK(cluster.send(1, push(0, step, buckets, {1, 2, 3, 4})).size() == 1);
  }
  cluster.shard(1).begin_epoch(1);
  std::vector<Outgoing> frames;
  cluster.shard(1).tables().snapshot({}, frames);
  REQUIRE(frames.size() == 5);  // records; two pieces, of which one has old keys and values
  ShardCluster other(rules);
  other.open(layout);
  const auto give = [&](const Outgoing& frame) {
    Message message{};
    message.header = frame.header;
    message.payload = frame.payload;
    return other.shard(1).restore(message);
  };
  const auto refused = [&](Outgoing frame, auto&& change) {
    change(frame);
    return test::error_of(ErrorKind::protocol, [&] { give(frame); });
  };
  CHECK_THAT(refused(frames[0], [](Outgoing& f) { f.payload = f.payload.first(31); }), Contains("31 bytes of state"));
  CHECK_THAT(refused(frames[0], [](Outgoing& f) { f.header.unit = 3; }), Contains("of table 3, which is none"));
  CHECK_THAT(refused(frames[1], [&](Outgoing& f) { f.header.set_range({0, 256}); }), Contains("in no piece"));
  CHECK_THAT(refused(frames[2], [&](Outgoing& f) { f.header.micro = 0x104; }), Contains("which cannot be"));
  CHECK_THAT(refused(frames[3], [](Outgoing&) {}), Contains("which cannot be"));  // values without keys
  for (const Outgoing& frame : frames) CHECK_FALSE(give(frame));
  const std::vector<std::byte> too_many((kMost + 1) * sizeof(std::uint64_t));
  CHECK_THAT(refused(frames[2], [&](Outgoing& f) { f.payload = too_many; }), Contains("which cannot be"));
  CHECK(other.shard(1).tables().rows() == 2);
  for (const std::uint64_t version : {1, 2})
    CHECK(other.send(1, pull(0, version, buckets, keys))[0].values() ==
          cluster.send(1, pull(0, version, buckets, keys))[0].values());
}
