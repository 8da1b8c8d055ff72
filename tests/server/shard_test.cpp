// The shard's protocol, frame by frame: versions, waiting, order, repeats, where answers go.
#include <algorithm>
#include <cmath>

#include <catch2/catch.hpp>

#include <psring/tests/support/shard_cluster.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::net;
using namespace psring::test;

namespace {

using Gradients = std::vector<std::vector<std::vector<float>>>;  // by worker and unit

Gradients gradients_of(const Layout& layout, std::size_t workers, std::uint64_t seed) {
  Gradients gradients(workers);
  for (std::size_t w = 0; w < workers; ++w)
    for (const UnitLayout& unit : layout.units)
      gradients[w].push_back(normal_values(unit.elements, seed + 100 * w + gradients[w].size()));
  return gradients;
}

std::vector<float> initial_values(const Layout& layout, std::size_t unit, std::uint64_t seed = 3) {
  std::vector<float> values(layout.units[unit].elements);
  initialise(layout.units[unit], {0, values.size()}, seed, values);
  return values;
}

/// ((g0 + g1) + g2) / n, rounded as in docs/design/promises.md.
std::vector<float> mean(const Gradients& gradients, std::size_t unit) {
  std::vector<float> sum = gradients[0][unit];
  for (std::size_t w = 1; w < gradients.size(); ++w)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradients[w][unit][i];
  for (float& value : sum) value *= 1.0F / static_cast<float>(gradients.size());
  return sum;
}

std::vector<FrameType> types(const std::vector<Reply>& replies) {
  std::vector<FrameType> list;
  for (const Reply& reply : replies) list.push_back(reply.header.type);
  return list;
}

using Types = std::vector<FrameType>;

}  // namespace

TEST_CASE("a shard starts from the values that the layout names, at version 0") {
  const Layout layout = small_layout(2);
  ShardCluster cluster({.servers = 2});
  CHECK(types(cluster.send(0, layout_frame(0, layout))) == Types{FrameType::layout_ok});
  CHECK(types(cluster.send(0, layout_frame(0, layout))) == Types{FrameType::layout_ok});  // repeated
  cluster.open(layout);
  for (std::size_t unit = 0; unit < 2; ++unit) CHECK(cluster.pull(layout, unit, 0) == initial_values(layout, unit));
  CHECK(cluster.shard(0).version() == 0);
  CHECK(cluster.shard(0).elements() == layout.elements() / 2);
  CHECK(cluster.shard(1).describe() ==
        fmt::format("{} of {} parameters in 2 units", layout.elements() / 2, layout.elements()));
}

TEST_CASE("bsp updates a piece with its last worker's push, and answers then") {
  const Layout layout = small_layout(1);
  const Piece piece = make_pieces(layout)[0];
  const Gradients g = gradients_of(layout, 3, 1);
  ShardCluster cluster({.workers = 3});
  cluster.open(layout);
  CHECK(cluster.send(0, pull_frame(1, piece, 1)).empty());  // a future version: waits
  CHECK(cluster.send(0, push_frame(2, piece, 0, g[2][0], FrameType::push_pull)).empty());
  CHECK(cluster.send(0, push_frame(0, piece, 0, g[0][0])).empty());
  CHECK(types(cluster.send(0, pull_frame(0, piece, 0))) == Types{FrameType::values});  // an old version: does not wait
  const std::vector<Reply> replies = cluster.send(0, push_frame(1, piece, 0, g[1][0]));
  REQUIRE(types(replies) == Types{FrameType::values, FrameType::values});
  std::vector<float> expected = initial_values(layout, 0);
  const std::vector<float> gradient = mean(g, 0);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = std::fma(-0.1F, gradient[i], expected[i]);
  for (const Reply& reply : replies) {
    CHECK(reply.header.version == 1);
    CHECK(reply.header.range() == piece.range);
    CHECK(reply.values() == expected);
  }
  CHECK(replies[0].to == Peer{Role::worker, 1});
  CHECK(replies[1].to == Peer{Role::worker, 2});
  CHECK(cluster.shard(0).version() == 0);  // the other unit is still at 0
  const std::vector<Reply> late = cluster.send(0, pull_frame(0, piece, 1));
  REQUIRE(late.size() == 1);
  CHECK(late[0].header.version == 1);
}

TEST_CASE("the order of arrival changes no bit, nor does the number of shards or threads") {
  // A sum of three f32 numbers depends on the order, so an order other than the workers' would show.
  Layout one = make_layout({{"u", {{{"a", {600'000}, {Init::Kind::normal, 1}}, 0}}}}, 1);
  const Gradients g = gradients_of(one, 3, 9);
  const auto run = [&](std::size_t servers, std::size_t threads, std::uint64_t order) {
    const Layout layout = make_layout({{"u", {{{"a", {600'000}, {Init::Kind::normal, 1}}, 0}}}}, servers);
    Gradients padded = g;
    for (auto& of_worker : padded) of_worker[0].resize(layout.units[0].elements);
    ShardCluster cluster({.servers = servers, .workers = 3, .optimizer = "momentum", .threads = threads}, order);
    cluster.open(layout);
    for (std::uint64_t step = 0; step < 3; ++step) cluster.step(layout, step, padded);
    std::vector<float> values = cluster.pull(layout, 0, 3);
    values.resize(600'000);
    return values;
  };
  const std::vector<float> reference = run(1, 1, 1);
  REQUIRE(reference.size() == 600'000);
  for (std::uint64_t order = 2; order < 5; ++order) CHECK((run(1, 1, order) == reference));
  for (const std::size_t threads : {2, 3}) CHECK((run(1, threads, 7) == reference));
  for (const std::size_t servers : {2, 3}) CHECK((run(servers, 2, 8) == reference));
}

TEST_CASE("a repeated push is dropped, and acknowledged when the first one has been applied") {
  const Layout layout = small_layout(1);
  const std::vector<Piece> pieces = make_pieces(layout);
  const Gradients g = gradients_of(layout, 2, 1);
  ShardCluster cluster({.workers = 2});
  cluster.open(layout);
  Frame push = push_frame(0, pieces[0], 0, g[0][0]);
  push.header.flags = FrameHeader::kWantAck;
  CHECK(cluster.send(0, push).empty());
  Frame other = push_frame(0, pieces[0], 0, g[1][0]);
  other.header.flags = FrameHeader::kWantAck;
  CHECK(cluster.send(0, other).empty());  // the first push counts, and waits
  const std::vector<Reply> acknowledged = cluster.send(0, push_frame(1, pieces[0], 0, g[1][0]));
  REQUIRE(types(acknowledged) == Types{FrameType::push_ack});
  CHECK(acknowledged[0].to == Peer{Role::worker, 0});
  std::vector<float> expected = initial_values(layout, 0);
  const std::vector<float> gradient = mean(g, 0);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = std::fma(-0.1F, gradient[i], expected[i]);
  CHECK(cluster.pull(layout, 0, 1) == expected);
  CHECK(types(cluster.send(0, push)) == Types{FrameType::push_ack});  // also after the update
  const std::vector<Reply> again = cluster.send(0, push_frame(0, pieces[0], 0, g[0][0], FrameType::push_pull));
  REQUIRE(types(again) == Types{FrameType::values});
  CHECK(again[0].values() == expected);
  CHECK(cluster.pull(layout, 0, 2).empty());
}

TEST_CASE("a push that is to be copied is acknowledged at once, and once") {
  const Layout layout = small_layout(1);
  const std::vector<Piece> pieces = make_pieces(layout);
  const Gradients g = gradients_of(layout, 2, 1);
  ShardCluster cluster({.workers = 2});
  cluster.open(layout);
  Frame push = push_frame(0, pieces[0], 0, g[0][0]);
  push.header.flags = FrameHeader::kWantAck | FrameHeader::kCopy;
  CHECK(types(cluster.send(0, push)) == Types{FrameType::push_ack});
  CHECK(types(cluster.send(0, push)) == Types{FrameType::push_ack});  // a repeated push
  CHECK(cluster.send(0, push_frame(1, pieces[0], 0, g[1][0])).empty());
  std::vector<float> expected = initial_values(layout, 0);
  const std::vector<float> gradient = mean(g, 0);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = std::fma(-0.1F, gradient[i], expected[i]);
  CHECK(cluster.pull(layout, 0, 1) == expected);
}

TEST_CASE("a pull is answered with the very version that it names, as long as that is there") {
  const Layout layout = small_layout(1);
  const Piece piece = make_pieces(layout)[0];
  ShardCluster cluster({.workers = 1, .first_version = 2});
  cluster.open(layout);
  std::vector<std::vector<float>> versions;
  for (std::uint64_t version = 2; version < 5; ++version) {
    versions.push_back(cluster.pull(layout, 0, version));
    const auto refused = [&](std::uint64_t asked) {
      const std::vector<Reply> replies = cluster.send(0, test::pull_frame(0, piece, asked));
      return types(replies) == Types{FrameType::failed} &&
             replies[0].text().find(fmt::format("version {} of unit 0, which is at {}", asked, version)) !=
                 std::string::npos;
    };
    if (version > 2) {
      const std::vector<Reply> before = cluster.send(0, test::pull_frame(0, piece, version - 1));
      REQUIRE(types(before) == Types{FrameType::values});
      CHECK(before[0].header.version == version - 1);
      CHECK((cluster.pull(layout, 0, version - 1) == versions[version - 3]));
      CHECK((versions[version - 2] != versions[version - 3]));
    } else {
      CHECK(refused(1));  // from before the job began
    }
    if (version > 3) CHECK(refused(version - 2));
    const Gradients g = gradients_of(layout, 1, version);
    cluster.step(layout, version, g);
  }
  // The version that a push of an old step leads to is gone, so a push_pull is refused; a push is still acknowledged.
  Frame push = push_frame(0, piece, 2, gradients_of(layout, 1, 2)[0][0], FrameType::push_pull);
  CHECK(types(cluster.send(0, push)) == Types{FrameType::failed});
  push.header.type = FrameType::push;
  push.header.flags = FrameHeader::kWantAck;
  CHECK(types(cluster.send(0, push)) == Types{FrameType::push_ack});
}

TEST_CASE("where each push is an update, a worker goes on where its own clock is") {
  const Layout layout = small_layout(1);
  const std::vector<Piece> pieces = make_pieces(layout);
  const Gradients g = gradients_of(layout, 2, 1);
  ShardCluster cluster({.workers = 2, .consistency = "asp"});
  cluster.open(layout);
  for (std::uint64_t step = 0; step < 3; ++step)
    for (const Piece& piece : pieces)
      if (step < 2 || piece.unit == 0) cluster.send(0, push_frame(1, piece, step, g[1][piece.unit]));
  cluster.shard(0).begin_epoch(2);
  CHECK(cluster.send(0, layout_frame(0, layout))[0].header.version == 0);
  CHECK(cluster.send(0, layout_frame(1, layout))[0].header.version == 2);
  CHECK(cluster.shard(0).version() == 2);
  for (const Piece& piece : pieces)
    cluster.send(0, push_frame(1, piece, 2, g[1][piece.unit]));  // unit 0's push is repeated
  CHECK(cluster.shard(0).version() == 3);
  CHECK(cluster.send(0, pull_frame(0, pieces[0], 0))[0].header.version == 3);
}

TEST_CASE("a push that waits for others stays where it is, and is acknowledged when it has been added to them") {
  const std::size_t micros = GENERATE(1, 2);
  Layout layout = small_layout(1);
  layout.pushes = micros;
  const Piece piece = make_pieces(layout)[0];
  const Gradients g = gradients_of(layout, 2, 1);
  ShardCluster cluster({.workers = 2});
  cluster.open(layout);
  const auto push_of = [&](std::uint32_t worker, std::uint32_t micro) {
    Frame frame = push_frame(worker, piece, 0, g[worker][0]);
    frame.header.flags = FrameHeader::kWantAck;
    frame.header.micro = micro;
    return frame;
  };
  // The payloads lie in the senders' own memory, as with shared memory. Worker 0 is ahead by all micro-batches.
  std::vector<Frame> frames;
  for (std::uint32_t micro = 0; micro < micros; ++micro) frames.push_back(push_of(0, micro));
  std::vector<Outgoing> replies;
  for (const Frame& frame : frames) cluster.shard(0).on_message({frame.header, frame.payload, {}, nullptr}, replies);
  CHECK(replies.empty());
  CHECK(cluster.communication_bytes() == 0);
  for (std::uint32_t micro = 0; micro < micros; ++micro) {
    const std::vector<Reply> added = cluster.send(0, push_of(1, micro));
    REQUIRE(types(added) == Types{FrameType::push_ack, FrameType::push_ack});
    CHECK(added[0].to == Peer{Role::worker, 0});
    std::ranges::fill(frames[micro].payload, std::byte{0x55});  // the acknowledgement allows it
  }
  const std::vector<Reply> answer = cluster.send(0, pull_frame(0, piece, 1));
  REQUIRE(types(answer) == Types{FrameType::values});
  std::vector<float> expected = initial_values(layout, 0);
  const std::vector<float> gradient = mean(g, 0);
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] = std::fma(-0.1F, static_cast<float>(micros) * gradient[i], expected[i]);
  CHECK(answer[0].values() ==
        std::vector<float>(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(piece.range.end)));
}

TEST_CASE("a worker that asks anew waits once") {
  const Layout layout = small_layout(1);
  const Piece piece = make_pieces(layout)[0];
  const Gradients g = gradients_of(layout, 1, 1);
  ShardCluster cluster({});
  cluster.open(layout);
  for (int i = 0; i < 5; ++i) CHECK(cluster.send(0, pull_frame(0, piece, 1)).empty());
  CHECK(types(cluster.send(0, push_frame(0, piece, 0, g[0][0]))) == Types{FrameType::values});
}

TEST_CASE("an answer is stored where the asker has space for it") {
  const auto optimizer = GENERATE(values<std::string>({"adam", ""}));
  const Layout layout = small_layout(1);
  const Piece piece = make_pieces(layout)[0];
  const Gradients g = gradients_of(layout, 2, 1);
  ShardCluster cluster({.workers = 2, .optimizer = optimizer});
  cluster.open(layout);
  std::vector<float> space(piece.range.size(), -1.0F);
  Frame ask = push_frame(0, piece, 0, g[0][0], FrameType::push_pull);
  ask.header.dest = 77;
  ask.reply_space = std::as_writable_bytes(std::span(space));
  CHECK(cluster.send(0, ask).empty());
  const std::vector<Reply> replies = cluster.send(0, push_frame(1, piece, 0, g[1][0], FrameType::push_pull));
  REQUIRE(types(replies) == Types{FrameType::values, FrameType::values});
  CHECK(replies[0].stood_at == space.data());
  CHECK(replies[0].header.dest == 77);
  CHECK(replies[1].stood_at != space.data());
  CHECK(replies[0].values() == space);
  CHECK(replies[1].values() == space);
  // A pull of the current version is stored, too.
  std::fill(space.begin(), space.end(), -1.0F);
  Frame pull = pull_frame(1, piece, 1);
  pull.reply_space = std::as_writable_bytes(std::span(space));
  const std::vector<Reply> pulled = cluster.send(0, pull);
  REQUIRE(types(pulled) == Types{FrameType::values});
  CHECK(pulled[0].stood_at == space.data());
  CHECK(space == replies[1].values());
}

TEST_CASE("without an optimizer a shard answers with the aggregate") {
  const Layout layout = small_layout(2);
  const auto rule = GENERATE(values<std::string>({"mean", "sum", "median"}));
  const Gradients g = gradients_of(layout, 3, 4);
  ShardCluster cluster({.servers = 2, .workers = 3, .optimizer = "", .aggregate = rule});
  cluster.open(layout);
  CHECK(cluster.pull(layout, 0, 0).empty());  // nothing is aggregated yet
  cluster.step(layout, 0, g);
  for (std::size_t unit = 0; unit < 2; ++unit) {
    std::vector<float> expected = mean(g, unit);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const float a = g[0][unit][i];
      const float b = g[1][unit][i];
      const float c = g[2][unit][i];
      if (rule == "sum") expected[i] = (a + b) + c;
      if (rule == "median") expected[i] = std::max(std::min(a, b), std::min(std::max(a, b), c));
    }
    CHECK(cluster.pull(layout, unit, 1) == expected);
  }
}

TEST_CASE("worker 0 may give the initial values, once, before the start") {
  const Layout layout = small_layout(1);
  const std::vector<Piece> pieces = make_pieces(layout);
  const Gradients g = gradients_of(layout, 2, 1);
  const std::vector<float> given = normal_values(layout.units[0].elements, 50);
  ShardCluster cluster({.workers = 2});
  for (std::uint32_t worker : {0, 1}) cluster.send(0, layout_frame(worker, layout, 3, true));
  CHECK(cluster.send(0, pull_frame(1, pieces[0], 0)).empty());  // not there yet
  CHECK(types(cluster.send(0, push_frame(1, pieces[0], 0, g[1][0]))) == Types{FrameType::failed});
  CHECK(types(cluster.send(0, push_frame(1, pieces[0], 0, given, FrameType::initial))) == Types{FrameType::failed});
  const std::vector<Reply> replies = cluster.send(0, push_frame(0, pieces[0], 0, given, FrameType::initial));
  REQUIRE(types(replies) == Types{FrameType::values});
  CHECK(replies[0].values() == given);
  CHECK(cluster.send(0, push_frame(0, pieces[0], 0, g[0][0], FrameType::initial)).empty());  // repeated: not taken
  CHECK(cluster.pull(layout, 0, 0) == given);
  for (std::uint32_t worker : {0, 1}) cluster.send(0, push_frame(worker, pieces[0], 0, g[worker][0]));
  // Worker 0 began anew while another piece has not been updated yet: not taken, either.
  const std::vector<float> updated = cluster.pull(layout, 0, 1);
  CHECK(cluster.send(0, push_frame(0, pieces[0], 0, given, FrameType::initial)).empty());
  CHECK(cluster.pull(layout, 0, 1) == updated);
  cluster.shard(0).begin_epoch(2);
  CHECK(cluster.pull(layout, 0, 1) == updated);
  CHECK(cluster.pull(layout, 0, 0) == given);
}
