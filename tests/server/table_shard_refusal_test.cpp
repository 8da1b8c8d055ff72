// Frames and layouts with tables that a shard cannot take are refused, and change no row.
#include <catch2/catch.hpp>

#include <psring/optim/codec/compression.h>
#include <psring/tests/server/row_frames.h>

using namespace psring;
using namespace psring::net;
using namespace psring::test;
using Catch::Contains;

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
