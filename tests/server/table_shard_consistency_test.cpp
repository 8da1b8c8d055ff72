// The versions of rows that a worker gets under asp and ssp, ahead of its step, and beside the rows that it keeps.
#include <cmath>
#include <cstring>
#include <utility>

#include <catch2/catch.hpp>

#include <psring/common/net/row_flags.h>
#include <psring/common/net/row_marks.h>
#include <psring/tests/server/row_frames.h>

using namespace psring;
using namespace psring::net;
using namespace psring::test;
using Catch::Contains;

TEST_CASE("under asp each worker's push is an update by its gradients alone, and knows its staleness") {
  ShardCluster cluster({.workers = 2, .lr = 0.5, .row_consistency = "asp"});
  cluster.open(layout_of(1));
  const std::uint64_t key = key_in(5);
  const std::vector<float> first = initial(key);
  CHECK(cluster.send(0, pull(0, 0, kAll, {key})).size() == 1);
  CHECK(cluster.send(0, pull(1, 0, kAll, {key})).size() == 1);
  CHECK(cluster.send(0, pull(1, 1, kAll, {key})).empty());  // waits for its own push
  const auto one = cluster.send(0, push(1, 0, kAll, {1, 2}));
  REQUIRE(one.size() == 2);
  CHECK(one[0].header.type == FrameType::rows_ack);
  CHECK(one[0].header.staleness == 0);
  CHECK(one[1].header.type == FrameType::rows);
  const std::vector<float> once{std::fma(-0.5F, 1.0F, first[0]), std::fma(-0.5F, 2.0F, first[1])};
  CHECK(one[1].values() == once);
  CHECK(cluster.send(0, push(1, 1, kAll, {0, 0})).size() == 1);
  const auto stale = cluster.send(0, push(0, 0, kAll, {4, 4}));
  REQUIRE(stale.size() == 1);
  CHECK(stale[0].header.staleness == 2);
  CHECK(cluster.shard(0).staleness()[0].most == 2);
  CHECK(cluster.shard(0).staleness()[1].most_lag == 1);
  Frame last = pull(0, kFinalVersion, kAll, {key});
  last.header.flags = FrameHeader::kStartUp;
  last.header.step = 0;
  CHECK(cluster.send(0, last).empty());
  for (std::uint32_t worker = 0; worker < 2; ++worker) {
    Frame leaves;
    leaves.header.type = FrameType::leave;
    leaves.header.sender_rank = worker;
    CHECK(cluster.send(0, leaves).size() == worker);
  }
  CHECK(cluster.send(0, push(0, 1, kAll, {1, 1}))[0].header.type == FrameType::failed);
}

TEST_CASE("under asp rows that were pulled ahead are as stale as their version says") {
  Layout layout = layout_of(1);
  layout.tables[0].lookahead = 2;
  ShardCluster cluster({.workers = 2, .lr = 0.5, .row_consistency = "asp"});
  cluster.open(layout);
  const std::uint64_t key = key_in(5);
  for (std::uint64_t step = 0; step < 3; ++step) CHECK(cluster.send(0, pull(0, step, kAll, {key})).size() == 1);
  CHECK_THAT(cluster.send(0, pull(0, 3, kAll, {key}))[0].text(), Contains("a pull of version 3"));
  CHECK(cluster.send(0, pull(1, 0, kAll, {key})).size() == 1);
  CHECK(cluster.send(0, push(1, 0, kAll, {1, 1})).size() == 1);
  for (std::uint32_t step = 0; step < 3; ++step)  // rows of version 0, after the other worker's update and its own
    CHECK(cluster.send(0, push(0, step, kAll, {1, 1}))[0].header.staleness == 1 + step);
  const auto last = cluster.send(0, pull(0, 3, kAll, {key}));
  REQUIRE(last.size() == 1);
  CHECK(cluster.send(0, push(0, 3, kAll, {1, 1}))[0].header.staleness == 0);
}

TEST_CASE("under ssp a pull waits while its worker is too far ahead") {
  ShardCluster cluster({.workers = 2, .row_consistency = "ssp:1"});
  cluster.open(layout_of(1));
  for (std::uint64_t step = 0; step < 2; ++step) {
    CHECK(cluster.send(0, pull(0, step, kAll, {key_in(1)})).size() == 1);
    CHECK(cluster.send(0, push(0, step, kAll, {1, 1})).size() == 1);
  }
  CHECK(cluster.send(0, pull(0, 2, kAll, {key_in(1)})).empty());
  CHECK(cluster.send(0, push(0, 2, kAll, {1, 1}))[0].header.type == FrameType::failed);  // was not answered
  CHECK(cluster.send(0, pull(1, 0, kAll, {key_in(2)})).size() == 1);
  CHECK(cluster.send(0, push(1, 0, kAll, {1, 1})).size() == 2);
  CHECK(cluster.send(0, push(0, 2, kAll, {1, 1})).size() == 1);
}

TEST_CASE("under ssp the bound grows by the steps that are pulled ahead") {
  Layout layout = layout_of(1);
  layout.tables[0].lookahead = 1;
  ShardCluster cluster({.workers = 2, .row_consistency = "ssp:1"});
  cluster.open(layout);
  const auto pulled = [&](std::uint64_t step) { return cluster.send(0, pull(0, step, kAll, {key_in(1)})).size(); };
  const auto pushed = [&](std::uint64_t step) { return cluster.send(0, push(0, step, kAll, {1, 1})).size(); };
  CHECK(pulled(0) == 1);
  CHECK(pulled(1) == 1);
  CHECK(pushed(0) == 1);
  CHECK(pulled(2) == 1);
  CHECK(pushed(1) == 1);
  CHECK(pulled(3) == 0);  // the other worker is at step 0: three steps behind this pull, two behind this worker
  CHECK(pushed(2) == 1);
  CHECK(cluster.send(0, pull(1, 0, kAll, {key_in(2)})).size() == 1);
  CHECK(cluster.send(0, push(1, 0, kAll, {1, 1})).size() == 2);
  CHECK(pushed(3) == 1);
}

TEST_CASE("the rows of the next step that nobody trains in this one come before its update") {
  Layout layout = layout_of(1);
  layout.tables[0].lookahead = 1;
  const auto ahead = [](std::uint32_t worker, std::uint64_t version, const std::vector<std::uint64_t>& keys) {
    Frame frame = pull(worker, version, kAll, keys);
    frame.header.flags = kAhead;
    frame.header.micro += static_cast<std::uint32_t>(mark_bytes(keys.size()) / sizeof(float));
    return frame;
  };
  const std::vector<std::uint64_t> next{key_in(1), key_in(2), key_in(3), key_in(4)};
  const auto first = [](const Reply& reply) {  // marks, then rows
    const std::vector<float> values = reply.values();
    std::uint64_t marks = 0;
    std::memcpy(&marks, values.data(), sizeof marks);
    return std::pair(marks, std::vector<float>(values.begin() + 2, values.end()));
  };
  ShardCluster cluster({.workers = 2, .lr = 0.5});
  cluster.open(layout);
  CHECK(cluster.send(0, pull(0, 0, kAll, {key_in(2), key_in(9)})).size() == 1);
  CHECK(cluster.send(0, ahead(0, 1, next)).empty());  // the other worker's keys are not known
  const auto early = cluster.send(0, pull(1, 0, kAll, {key_in(3)}));
  REQUIRE(early.size() == 2);
  CHECK(early[1].header.flags == kAhead);
  CHECK(early[1].header.version == 1);
  CHECK(first(early[1]).first == 0b1001);
  std::vector<float> expected = initial(next[0]);
  expected.insert(expected.end(), {initial(next[3])[0], initial(next[3])[1]});
  CHECK(first(early[1]).second == expected);
  CHECK(cluster.send(0, ahead(1, 1, {})).size() == 1);  // an empty first part
  CHECK(cluster.send(0, push(0, 0, kAll, {1, 1, 1, 1})).empty());
  const auto late = cluster.send(0, push(1, 0, kAll, {1, 1}));
  REQUIRE(late.size() == 4);  // after two acknowledgements
  CHECK(late[2].header.flags == 0);
  const std::vector<float> b = initial(next[1]);
  const std::vector<float> c = initial(next[2]);
  CHECK(late[2].values() == std::vector<float>{std::fma(-0.5F, 0.5F, b[0]), std::fma(-0.5F, 0.5F, b[1]),
                                               std::fma(-0.5F, 0.5F, c[0]), std::fma(-0.5F, 0.5F, c[1])});
  CHECK(late[3].payload.empty());

  ShardCluster sweeps({.workers = 1, .row_rules = {.ttl = 1, .sweep = 2}});
  sweeps.open(layout);
  CHECK(sweeps.send(0, pull(0, 0, kAll, {key_in(7)})).size() == 1);
  CHECK(first(sweeps.send(0, ahead(0, 1, next))[0]).first == 0b1111);
  CHECK(sweeps.send(0, push(0, 0, kAll, {1, 1})).size() == 2);
  CHECK(first(sweeps.send(0, ahead(0, 2, {key_in(7)}))[0]).first == 0);  // the update to version 2 takes out rows
  CHECK(sweeps.send(0, push(0, 1, kAll, {1, 1, 1, 1, 1, 1, 1, 1}))[1].values() == initial(key_in(7)));

  ShardCluster plain({.workers = 1});
  plain.open(layout_of(1));
  CHECK_THAT(plain.send(0, ahead(0, 0, next))[0].text(), Contains("a rows_pull ahead of table 2"));
  ShardCluster async({.workers = 1, .row_consistency = "asp"});
  async.open(layout);
  CHECK_THAT(async.send(0, ahead(0, 0, next))[0].text(), Contains("not pulled ahead"));
  Frame short_of_marks = ahead(0, 1, next);
  short_of_marks.header.micro -= 2;
  ShardCluster other({.workers = 1});
  other.open(layout);
  CHECK_THAT(other.send(0, short_of_marks)[0].text(), Contains("a pull of 32 bytes of keys for 8 values"));
}

TEST_CASE("a pull that names the rows that a worker has is answered by the others") {
  ShardCluster cluster({.workers = 1, .lr = 0.5, .row_consistency = "ssp:2"});
  cluster.open(layout_of(1));
  const std::vector<std::uint64_t> keys{key_in(1), key_in(2), key_in(3)};
  const auto cached = [&](std::uint64_t step, std::uint64_t here, std::size_t wanted) {
    Frame frame = pull(0, step, kAll, keys);
    frame.header.flags = kCached;
    frame.header.micro = static_cast<std::uint32_t>(wanted * kWidth);
    const auto bytes = std::as_bytes(std::span(&here, 1));
    frame.payload.insert(frame.payload.end(), bytes.begin(), bytes.end());
    return frame;
  };
  const auto refused = [&](const Frame& frame) { return cluster.send(0, frame)[0].text(); };
  CHECK_THAT(refused(cached(0, 2, 3)), Contains("bytes of keys for 6 values"));
  CHECK_THAT(refused(cached(0, 8, 3)), Contains("with bits for more than its 3 keys"));
  Frame cut = cached(0, 2, 2);
  cut.payload.pop_back();
  CHECK_THAT(refused(cut), Contains("bytes of keys, which are no whole number of keys"));
  Frame reads = cached(0, 2, 2);
  reads.header.flags |= FrameHeader::kStartUp;
  CHECK_THAT(refused(reads), Contains("whose rows no worker keeps"));
  const auto rows = cluster.send(0, cached(0, 2, 2));
  CHECK(rows[0].header.flags == 0);
  const std::vector<float> first = initial(keys[0]);
  const std::vector<float> third = initial(keys[2]);
  CHECK(rows[0].values() == std::vector<float>{first[0], first[1], third[0], third[1]});
  CHECK(cluster.send(0, push(0, 0, kAll, {1, 1, 2, 2, 3, 3}))[0].header.type == FrameType::rows_ack);
  CHECK(cluster.shard(0).tables().rows() == 3);
  CHECK(cluster.send(0, cached(1, 7, 0))[0].payload.empty());
  CHECK(cluster.send(0, push(0, 1, kAll, {1, 1, 2, 2, 3, 3}))[0].header.type == FrameType::rows_ack);
  const std::vector<float> second = initial(keys[1]);
  const auto after = cluster.send(0, cached(2, 5, 1));
  CHECK(after[0].values() == std::vector<float>{second[0] - 2, second[1] - 2});
  ShardCluster exact({.workers = 1});
  exact.open(layout_of(1));
  CHECK_THAT(exact.send(0, cached(0, 2, 2))[0].text(), Contains("whose rows no worker keeps"));
}
