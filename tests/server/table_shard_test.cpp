// The rows of a shard: keys once, gradients in the order of the pull, versions, refusals.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include <catch2/catch.hpp>
#include <malloc.h>

#include <psring/common/net/row_flags.h>
#include <psring/optim/codec/compression.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/optim/rows/table_rows.h>
#include <psring/server/table_shard.h>
#include <psring/tests/support/shard_cluster.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::net;
using Catch::Contains;
using test::Frame;
using test::Reply;
using test::ShardCluster;

namespace {

constexpr std::size_t kWidth = 2;
constexpr std::size_t kMost = 8;

Layout layout_of(std::size_t servers, std::size_t pieces = 1) {
  Layout layout = test::small_layout(servers);
  layout.tables = {{.name = "rows",
                    .width = kWidth,
                    .init = {Init::Kind::uniform, 0.5F},
                    .most_keys = kMost,
                    .most_bags = kMost,
                    .pieces = pieces}};
  return layout;
}

Frame pull(std::uint32_t worker, std::uint64_t version, Range buckets, const std::vector<std::uint64_t>& keys) {
  Frame frame;
  frame.header.type = FrameType::rows_pull;
  frame.header.sender_rank = worker;
  frame.header.unit = 2;
  frame.header.set_range(buckets);
  frame.header.step = frame.header.version = version;
  frame.header.micro = static_cast<std::uint32_t>(keys.size() * kWidth);
  const auto bytes = std::as_bytes(std::span(keys));
  frame.payload.assign(bytes.begin(), bytes.end());
  return frame;
}

Frame push(std::uint32_t worker, std::uint64_t step, Range buckets, const std::vector<float>& gradients) {
  Frame frame;
  frame.header.type = FrameType::rows_push;
  frame.header.flags = FrameHeader::kWantAck;
  frame.header.sender_rank = worker;
  frame.header.unit = 2;
  frame.header.set_range(buckets);
  frame.header.step = frame.header.version = step;
  const auto bytes = std::as_bytes(std::span(gradients));
  frame.payload.assign(bytes.begin(), bytes.end());
  return frame;
}

constexpr Range kAll{0, kBuckets};
std::uint64_t key_in(std::size_t bucket, std::uint64_t low = 0) { return std::uint64_t{bucket} << 44 | low; }

std::vector<float> initial(std::uint64_t key) {
  std::vector<float> values(kWidth);
  optim::initial_row({Init::Kind::uniform, 0.5F}, 3, 0, key, values);
  return values;
}

}  // namespace

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

TEST_CASE("frames that the protocol does not allow change nothing") {
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
  const Frame good = pull(0, 0, kAll, {key_in(1), key_in(2)});
  CHECK_THAT(refused(pull(0, 0, kAll, {key_in(2), key_in(1)})), Contains("out of order"));
  CHECK_THAT(refused(pull(0, 0, kAll, {key_in(2), key_in(2)})), Contains("out of order"));
  CHECK_THAT(refused(pull(0, 0, {0, 256}, {key_in(256)})), Contains("not in buckets [0, 256)"));
  CHECK_THAT(refused(pull(0, 0, {256, kBuckets}, {key_in(300)})), Contains("from bucket 0 is due"));
  CHECK_THAT(refused(pull(0, 0, {0, 256}, {})), Contains("without keys"));
  CHECK_THAT(refused(pull(0, 0, {0, kBuckets + 1}, {key_in(2)})), Contains("in no piece"));
  CHECK_THAT(refused(pull(0, 2, kAll, {})), Contains("a pull of version 2"));
  CHECK_THAT(refused(pull(0, 1, kAll, {})), Contains("where step 0"));
  CHECK_THAT(refused(pull(2, 0, kAll, {})), Contains("no worker of this job"));
  CHECK_THAT(refused(pull(0, 0, kAll, {0, 1, 2, 3, 4, 5, 6, 7, 8})), Contains("9 keys of one batch, at most 8"));
  CHECK_THAT(refused(wrong(good, [](Frame& f) { f.header.unit = 3; })), Contains("of table 3, which is none"));
  CHECK_THAT(refused(wrong(good, [](Frame& f) { f.header.unit = 1; })), Contains("of table 1, which is none"));
  CHECK_THAT(refused(wrong(good, [](Frame& f) { f.payload.resize(15); })), Contains("15 bytes of keys"));
  CHECK_THAT(refused(wrong(good, [](Frame& f) { f.header.micro = 5; })), Contains("for 5 values"));
  CHECK_THAT(refused(wrong(good, [](Frame& f) { f.header.dtype = DType::bf16; })),
             Contains("rows of type bf16, f32 expected"));
  CHECK_THAT(refused(push(0, 0, kAll, {1, 2})), Contains("not pulled"));
  std::vector<std::byte> small(3);
  CHECK_THAT(refused(wrong(good, [&](Frame& f) { f.reply_space = small; })), Contains("space of 3 bytes for 2 rows"));
  CHECK(cluster.send(0, good)[0].header.type == FrameType::rows);
  CHECK_THAT(refused(good), Contains("where step 1"));
  CHECK_THAT(refused(push(0, 0, kAll, {1, 2})), Contains("gradients of 8 bytes for 2 rows"));
  CHECK_THAT(refused(push(0, 0, {0, 256}, {1, 2})), Contains("pulled otherwise"));
  CHECK_THAT(refused(push(0, 1, kAll, {1, 2, 3, 4})), Contains("gradients of step 1"));
  CHECK(cluster.send(0, push(0, 0, kAll, {1, 2, 3, 4})).empty());
  CHECK(cluster.send(0, pull(1, 0, kAll, {}))[0].header.type == FrameType::rows);
  CHECK(cluster.send(0, push(1, 0, kAll, {})).size() == 2);
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

TEST_CASE("gradients of rows are taken in the table's code alone") {
  ShardCluster cluster({.workers = 1, .lr = 0.5, .table_compress = "int8"});
  cluster.open(layout_of(1));
  const std::vector<std::uint64_t> keys{key_in(1), key_in(2)};
  Frame marked = pull(0, 0, kAll, keys);
  marked.header.encoding = Encoding::int8;
  CHECK_THAT(cluster.send(0, marked)[0].text(), Contains("a rows_pull of table 2 in encoding"));
  CHECK(cluster.send(0, pull(0, 0, kAll, keys))[0].header.type == FrameType::rows);
  const std::vector<float> gradients{127, -12, 0, 1.27F};
  CHECK_THAT(cluster.send(0, push(0, 0, kAll, gradients))[0].text(), Contains("a rows_push of table 2 in encoding"));
  Frame coded = push(0, 0, kAll, gradients);
  coded.header.encoding = Encoding::int8;
  CHECK_THAT(cluster.send(0, coded)[0].text(), Contains("gradients of 16 bytes for 2 rows"));
  const auto codec = optim::make_codec("int8", false);
  coded.payload.resize(2 * codec->bytes(kWidth));
  for (std::size_t row = 0; row < 2; ++row)
    codec->encode(ConstElements(std::span<const float>(gradients).subspan(row * kWidth, kWidth)), {},
                  Elements(std::span(coded.payload).subspan(row * codec->bytes(kWidth), codec->bytes(kWidth))));
  CHECK(cluster.send(0, coded)[0].header.type == FrameType::rows_ack);
  const auto rows = cluster.send(0, pull(0, 1, kAll, keys));
  const std::vector<float> first = initial(keys[0]);
  const std::vector<float> second = initial(keys[1]);
  const std::vector<float> expected{first[0] - 0.5F * 127, first[1] + 0.5F * 12, second[0], second[1] - 0.5F * 1.27F};
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(rows[0].values()[i] == Approx(expected[i]).epsilon(1e-6));
}

TEST_CASE("a pull whose answer no frame has is refused") {
  ShardCluster cluster({.workers = 1});
  Layout layout = layout_of(1);
  layout.tables[0].width = 8192;
  layout.tables[0].most_keys = 1000;
  cluster.open(layout);
  const auto rows_of = [&](std::size_t count) {
    std::vector<std::uint64_t> keys(count);
    for (std::size_t i = 0; i < count; ++i) keys[i] = key_in(i);
    Frame frame = pull(0, 0, kAll, keys);
    frame.header.micro = static_cast<std::uint32_t>(count * 8192);
    frame.header.flags = FrameHeader::kStartUp;
    return cluster.send(0, frame);
  };
  CHECK_THAT(rows_of(513)[0].text(), Contains("513 rows of 32768 bytes"));
  CHECK(rows_of(512)[0].payload.size() == kMaxPayloadBytes);
}

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

TEST_CASE("layouts with tables that a server cannot take are refused") {
  ShardCluster without({.optimizer = ""});
  CHECK_THAT(without.send(0, test::layout_frame(0, layout_of(1)))[0].text(), Contains("a layout with tables"));
  ShardCluster small({.memory_bytes = 1 << 20});
  Layout layout = layout_of(1);
  layout.tables[0].most_keys = std::size_t{1} << 32;
  CHECK_THAT(small.send(0, test::layout_frame(0, layout))[0].text(), Contains("tables that take"));
  ShardCluster many({.workers = 256, .memory_bytes = 32 << 20});
  CHECK_THAT(many.send(0, test::layout_frame(0, layout_of(1, 256)))[0].text(), Contains("tables that take"));
  CHECK(many.send(0, test::layout_frame(0, layout_of(1, 64)))[0].header.type == FrameType::layout_ok);
  Layout wide = layout_of(1);
  wide.tables[0].width = 8193;
  CHECK_THAT(small.send(0, test::layout_frame(0, wide))[0].text(), Contains("8193"));
  CHECK(small.send(0, test::layout_frame(0, layout_of(1)))[0].header.type == FrameType::layout_ok);
}

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
