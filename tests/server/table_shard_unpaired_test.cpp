// Unpaired frames of rows: pushes that bring their keys, values that are assigned, and lists of rows.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <catch2/catch.hpp>

#include <psring/common/net/row_flags.h>
#include <psring/tests/server/row_frames.h>

using namespace psring;
using namespace psring::net;
using namespace psring::test;
using Catch::Contains;

namespace {

/// A push that brings its keys; with kStartUp it assigns values.
Frame keyed_push(std::uint32_t worker, std::uint64_t step, const std::vector<std::uint64_t>& keys,
                 const std::vector<float>& gradients, float lr) {
  Frame frame = push(worker, step, kAll, gradients);
  frame.header.flags = FrameHeader::kWantAck | kUnpaired;
  frame.header.micro = std::bit_cast<std::uint32_t>(lr);
  const auto bytes = std::as_bytes(std::span(keys));
  frame.payload.insert(frame.payload.begin(), bytes.begin(), bytes.end());
  return frame;
}

Frame unpaired_pull(std::uint32_t worker, std::uint64_t version, std::uint64_t number,
                    const std::vector<std::uint64_t>& keys) {
  Frame frame = pull(worker, version, kAll, keys);
  frame.header.flags = kUnpaired;
  frame.header.step = number;
  return frame;
}

Frame list_of(std::uint64_t first, std::uint32_t most) {
  Frame frame = pull(0, 0, kAll, {first});
  frame.header.flags = kListed | FrameHeader::kStartUp;
  frame.header.micro = most;
  return frame;
}

}  // namespace

TEST_CASE("unpaired pushes bring their keys and the learning rate of the step") {
  ShardCluster cluster({.workers = 2, .lr = 100});
  cluster.open(layout_of(1));
  const std::vector<std::uint64_t> keys{key_in(5), key_in(900)};
  CHECK(cluster.send(0, unpaired_pull(0, 0, 0, keys))[0].header.flags == kUnpaired);
  CHECK(cluster.send(0, unpaired_pull(0, 0, 1, {keys[1]}))[0].payload.size() == kWidth * sizeof(float));
  CHECK(cluster.send(0, unpaired_pull(0, 1, 2, {keys[1]})).empty());  // waits for the next version
  CHECK(cluster.send(0, keyed_push(0, 0, {keys[1]}, {1, 2}, 0.5F)).empty());
  CHECK(cluster.send(0, unpaired_pull(0, 2, 3, {keys[0]}))
            .empty());  // a worker may be a step ahead, and ask for the next
  CHECK(cluster.send(0, keyed_push(1, 0, {}, {}, 0.5F)).size() == 3);
  const std::vector<float> first = initial(keys[1]);
  const auto rows = cluster.send(0, unpaired_pull(1, 1, 0, {keys[1]}));
  CHECK(rows[0].values() == std::vector<float>{std::fma(-0.5F, 0.5F, first[0]), std::fma(-0.5F, 1.0F, first[1])});
  CHECK(cluster.shard(0).tables().rows() == 1);
  CHECK(cluster.send(0, keyed_push(0, 1, {}, {}, 0.25F)).empty());
  CHECK(cluster.send(0, keyed_push(1, 1, {}, {}, 0.25F)).size() == 3);
  CHECK(cluster.send(0, keyed_push(1, 0, {}, {}, 0.25F))[0].header.type == FrameType::rows_ack);  // is repeated
  CHECK(*cluster.shard(0).tables().version() == 2);
}

TEST_CASE("under asp each unpaired push is an update at once, with a rate of its own") {
  ShardCluster cluster({.workers = 2, .lr = 100, .row_consistency = "asp"});
  cluster.open(layout_of(1));
  const std::vector<std::uint64_t> keys{key_in(5), key_in(900)};
  const std::vector<float> first = initial(keys[1]);
  for (std::uint64_t step = 0; step < 3; ++step) {  // without a pull: the gradients come from no values
    const auto taken = cluster.send(0, keyed_push(1, step, {keys[1]}, {1, 2}, 0.5F));
    REQUIRE(taken.size() == 1);
    CHECK(taken[0].header.type == FrameType::rows_ack);
    CHECK(taken[0].header.staleness == 0);
  }
  CHECK(cluster.send(0, keyed_push(1, 1, {keys[1]}, {1, 2}, 0.5F)).size() == 1);  // is repeated, and changes nothing
  const auto rows = cluster.send(0, unpaired_pull(0, 0, 0, {keys[1]}));
  std::vector<float> expected = first;
  for (int update = 0; update < 3; ++update)
    for (std::size_t i = 0; i < kWidth; ++i) expected[i] = std::fma(-0.5F, i == 0 ? 1.0F : 2.0F, expected[i]);
  CHECK(rows[0].values() == expected);
  CHECK(cluster.send(0, unpaired_pull(0, 1, 1, {keys[1]})).empty());  // waits for the worker's own push
  CHECK(cluster.send(0, keyed_push(1, 3, keys, {1, 2, 3, 4}, 0.25F)).size() == 1);
  const auto own = cluster.send(0, keyed_push(0, 0, {keys[0]}, {8, 8}, 1.0F));
  REQUIRE(own.size() == 2);
  CHECK(own[0].header.staleness == 1);  // the update by the other worker
  CHECK(own[1].header.type == FrameType::rows);
  CHECK(*cluster.shard(0).tables().version() == 5);
  // The frames of a piece are an update once all have come.
  Frame part = keyed_push(0, 1, {keys[0]}, {1, 1}, 1.0F);
  part.header.end = 256;
  CHECK(cluster.send(0, part).empty());
  CHECK_THAT(cluster.send(0, keyed_push(0, 2, {}, {}, 1.0F))[0].text(), Contains("where step 1 is due"));
  CHECK(*cluster.shard(0).tables().version() == 5);
}

TEST_CASE("values of rows are assigned, and rows are listed in the order of their keys") {
  ShardCluster cluster({.workers = 2, .table_optimizer = "adagrad"});
  cluster.open(layout_of(1));
  CHECK(cluster.send(0, list_of(0, 5))[0].payload.empty());
  Frame values = keyed_push(0, 0, {key_in(1), key_in(2), key_in(2, 1)}, {1, 2, 3, 4, 5, 6}, 0);
  values.header.flags |= FrameHeader::kStartUp;
  const auto answers = cluster.send(0, values);
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].header.type == FrameType::rows_ack);
  CHECK(cluster.shard(0).tables().rows() == 3);
  const auto listed = [&](std::uint64_t first, std::uint32_t most) {
    const auto replies = cluster.send(0, list_of(first, most));
    REQUIRE(replies.size() == 1);
    REQUIRE(replies[0].header.type == FrameType::rows);
    CHECK((replies[0].header.flags & kListed) != 0);
    const std::size_t count = replies[0].payload.size() / 16;
    std::vector<std::uint64_t> keys(count);
    std::memcpy(keys.data(), replies[0].payload.data(), count * 8);
    std::vector<float> rows(count * kWidth);
    std::memcpy(rows.data(), replies[0].payload.data() + count * 8, count * 8);
    return std::pair{keys, rows};
  };
  CHECK(listed(0, 2).first == std::vector<std::uint64_t>{key_in(1), key_in(2)});
  CHECK(listed(key_in(2, 1), 2).first == std::vector<std::uint64_t>{key_in(2, 1)});
  CHECK(listed(key_in(2), 9).second == std::vector<float>{3, 4, 5, 6});
  CHECK(listed(key_in(3), 9).first.empty());
}

TEST_CASE("unpaired frames that the protocol does not allow change nothing") {
  ShardCluster cluster({.workers = 2});
  cluster.open(layout_of(1));
  const auto refused = [&](const Frame& frame) {
    const auto replies = cluster.send(0, frame);
    REQUIRE(replies.size() == 1);
    REQUIRE(replies[0].header.type == FrameType::failed);
    return replies[0].text();
  };
  const auto wrong = [](Frame frame, auto&& change) {
    change(frame);
    return frame;
  };
  const Frame good = keyed_push(0, 0, {key_in(1), key_in(2)}, {1, 2, 3, 4}, 0.5F);
  CHECK_THAT(refused(wrong(good, [](Frame& f) { f.payload.resize(31); })), Contains("31 bytes of keys and gradients"));
  CHECK_THAT(refused(keyed_push(0, 0, {}, {}, std::numeric_limits<float>::infinity())), Contains("learning rate inf"));
  CHECK_THAT(refused(keyed_push(0, 1, {}, {}, 0.5F)), Contains("where step 0"));
  CHECK_THAT(refused(keyed_push(0, 0, {key_in(2), key_in(1)}, {1, 2, 3, 4}, 0.5F)), Contains("out of order"));
  const std::vector<std::uint64_t> more{0, 1, 2, 3, 4, 5, 6, 7, 8};
  CHECK_THAT(refused(keyed_push(0, 0, more, std::vector<float>(18), 0.5F)),
             Contains("gradients of 9 keys of one step, at most 8 expected"));
  CHECK_THAT(refused(unpaired_pull(0, 3, 0, {})), Contains("a pull of version 3"));
  CHECK(cluster.send(0, unpaired_pull(1, 1, 0, {})).empty());  // waits
  CHECK_THAT(refused(unpaired_pull(1, 1, 1, {})), Contains("a second pull of version 1 without keys"));
  const std::vector<std::uint64_t> many{0, 1, 2, 3, 4, 5, 6, 7};
  for (std::uint64_t version = 1; version < 3; ++version)
    CHECK(cluster.send(0, unpaired_pull(0, version, version, many)).empty());  // they wait
  CHECK(cluster.send(0, good).empty());
  CHECK_THAT(refused(unpaired_pull(0, 1, 3, many)), Contains("8 keys beside 18 of one worker, at most 24 in 3 steps"));
  CHECK_THAT(refused(good), Contains("where step 1"));
  CHECK_THAT(refused(keyed_push(1, 0, {}, {}, 0.25F)), Contains("with learning rate 0.25, worker 0 with 0.5"));
  Frame values = keyed_push(1, 0, {key_in(1)}, {1, 2}, 0);
  values.header.flags |= FrameHeader::kStartUp;
  CHECK_THAT(refused(values), Contains("from worker 0"));
  CHECK_THAT(refused(wrong(list_of(0, 1), [](Frame& f) { f.payload.resize(7); })), Contains("a key of 7 bytes"));
  CHECK_THAT(refused(wrong(list_of(0, 1), [](Frame& f) { f.header.end = 256; })), Contains("[0, 256)"));
  CHECK(cluster.send(0, keyed_push(1, 0, {}, {}, 0.5F)).size() == 4);
  CHECK(cluster.shard(0).tables().rows() == 2);
}

TEST_CASE("unpaired pushes of a step bring at most the keys of a batch, in however many frames") {
  ShardCluster cluster({.workers = 1});
  cluster.open(layout_of(1, 2));
  const auto part = [](std::uint64_t step, std::size_t piece, std::uint64_t count) {
    const Range buckets = table_piece(kAll, 2, piece);
    std::vector<std::uint64_t> keys;
    for (std::uint64_t low = 0; low < count; ++low) keys.push_back(key_in(buckets.begin, low));
    Frame frame = keyed_push(0, step, keys, std::vector<float>(count * kWidth), 0.5F);
    frame.header.set_range(buckets);
    return frame;
  };
  for (std::uint64_t step = 0; step < 3; ++step) {
    CHECK(cluster.send(0, part(step, 0, 5))[0].header.type == FrameType::rows_ack);
    CHECK_THAT(cluster.send(0, part(step, 1, 4))[0].text(), Contains("gradients of 9 keys of one step, at most 8"));
    CHECK(cluster.send(0, part(step, 1, 3))[0].header.type == FrameType::rows_ack);
  }
  CHECK(*cluster.shard(0).tables().version() == 3);
}

TEST_CASE("unpaired frames are refused where rows have occurrences, codes or ssp's bound, or leave") {
  Frame values = keyed_push(0, 0, {key_in(1)}, {1, 2}, 0);
  values.header.flags |= FrameHeader::kStartUp;
  for (const test::ShardRules& rules :
       {test::ShardRules{.row_consistency = "ssp:1"}, test::ShardRules{.row_rules = {.admit = 2}},
        test::ShardRules{.row_rules = {.most = 4096, .by_count = true}}, test::ShardRules{.row_rules = {.ttl = 9}},
        test::ShardRules{.table_compress = "int8"}}) {
    ShardCluster cluster(rules);
    cluster.open(layout_of(1));
    for (const Frame& frame :
         {unpaired_pull(0, 0, 0, {key_in(1)}), keyed_push(0, 0, {key_in(1)}, {1, 2}, 0.5F), values})
      CHECK_THAT(cluster.send(0, frame)[0].text(),
                 Contains("with ssp's bound, with encoded gradients, or whose rows are admitted or evicted"));
    CHECK(cluster.shard(0).tables().rows() == 0);
  }
}
