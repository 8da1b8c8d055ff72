// A shard's part in checkpoints: when it is due, what it is, and how it begins from one.
#include <map>

#include <catch2/catch.hpp>

#include <psring/tests/support/shard_cluster.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::net;
using test::Frame;
using test::Reply;
using test::ShardCluster;
using test::ShardRules;

namespace {

Frame save_frame(std::uint32_t worker, std::uint64_t version) {
  Frame frame;
  frame.header.type = FrameType::save;
  frame.header.sender_rank = worker;
  frame.header.step = version;
  return frame;
}

std::vector<std::vector<std::vector<float>>> gradients(const Layout& layout, std::size_t workers, std::uint64_t seed) {
  std::vector<std::vector<std::vector<float>>> all(workers);
  for (auto& of_worker : all)
    for (const UnitLayout& unit : layout.units) of_worker.push_back(test::normal_values(unit.elements, ++seed));
  return all;
}

/// The state of all shards, by unit and array.
using State = std::map<std::pair<std::string, std::string>, std::vector<float>>;

State state_of(ShardCluster& cluster, const Layout& layout) {
  State state;
  for (std::size_t rank = 0; rank < layout.owners; ++rank)
    for (const optim::StatePart& part : cluster.shard(rank).state()) {
      std::vector<float>& whole = state[{part.unit->name, part.array}];
      for (const UnitLayout& unit : layout.units)
        if (unit.name == part.unit->name) whole.resize(unit.elements);
      std::ranges::copy(part.values.as<float>(), whole.begin() + static_cast<std::ptrdiff_t>(part.range.begin));
    }
  return state;
}

void check_failed(const std::vector<Reply>& replies, const std::string& text) {
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].header.type == FrameType::failed);
  CHECK_THAT(replies[0].text(), Catch::Contains(text));
}

}  // namespace

TEST_CASE("what was saved is where other shards begin, and they go on alike") {
  const auto clip = GENERATE(values({0.0, 0.5}));
  const auto optimizer = GENERATE(values<std::string>({"sgd", "momentum", "adamw", "lamb"}));
  CAPTURE(clip, optimizer);
  ShardRules rules{.servers = 3, .workers = 2, .optimizer = optimizer, .clip_norm = clip, .save_every = 1};
  ShardCluster first(rules);
  const Layout layout = test::small_layout(3);
  first.open(layout);
  for (std::uint64_t step = 0; step < 3; ++step) first.step(layout, step, gradients(layout, 2, 100 * step));
  const State saved = state_of(first, layout);
  CHECK(saved.size() == layout.units.size() * (1 + test::make_rule(optimizer)->slots()));

  const Layout other = test::small_layout(2);  // padded and cut differently
  rules.servers = 2;
  rules.first_version = 3;
  rules.saved = [&](const UnitLayout& unit, Range range, const std::string& array, std::span<float> out) {
    const std::vector<float>& whole = saved.at({unit.name, array});
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = range.begin + i < whole.size() ? whole[range.begin + i] : 0;
  };
  ShardCluster second(rules);
  second.open(other, 77);  // another seed: its initial values are all replaced
  CHECK(second.shard(1).version() == 3);
  const auto step = [&](ShardCluster& cluster, const Layout& its) {
    auto same = gradients(layout, 2, 300);
    for (auto& of_worker : same)
      for (std::size_t u = 0; u < its.units.size(); ++u) of_worker[u].resize(its.units[u].elements, 0.0F);
    cluster.step(its, 3, same);
  };
  for (std::size_t unit = 0; unit < layout.units.size(); ++unit) {
    std::vector<float> begin = second.pull(other, unit, 3);
    begin.resize(layout.units[unit].elements, 0.0F);
    CHECK((begin == first.pull(layout, unit, 3)));
  }
  step(first, layout);
  step(second, other);
  for (std::size_t unit = 0; unit < layout.units.size(); ++unit) {
    const UnitLayout& of = layout.units[unit];
    const std::vector<float> a = first.pull(layout, unit, 4);
    const std::vector<float> b = second.pull(other, unit, 4);
    REQUIRE((!a.empty() && !b.empty()));
    for (const TensorLayout& tensor : of.tensors)
      CHECK(std::equal(a.begin() + tensor.offset, a.begin() + tensor.offset + tensor.spec.elements(),
                       b.begin() + tensor.offset));
  }
}

TEST_CASE("a save waits for its version, and is answered once it is on the disk") {
  ShardCluster cluster({.servers = 2, .workers = 2, .optimizer = "momentum", .save_every = 1});
  const Layout layout = test::small_layout(2);
  cluster.open(layout);
  const auto pushed = gradients(layout, 2, 1);
  server::Shard& shard = cluster.shard(0);
  // Worker 0 has pushed, and asks to save; worker 1 pushes after that.
  for (const Piece& piece : make_pieces(layout))
    if (piece.owner == 0) cluster.send(0, test::push_frame(0, piece, 0, pushed[0][piece.unit]));
  CHECK(cluster.send(0, save_frame(0, 1)).empty());
  for (const Piece& piece : make_pieces(layout)) {
    if (piece.owner != 0) continue;
    CHECK_FALSE(shard.save_due());
    cluster.send(0, test::push_frame(1, piece, 0, pushed[1][piece.unit]));
  }
  REQUIRE(shard.save_due() == 1);
  std::vector<Outgoing> replies;
  shard.saved(replies);
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].to == Peer{Role::worker, 0});
  CHECK(replies[0].header.type == FrameType::saved);
  CHECK(replies[0].header.step == 1);
  CHECK_FALSE(shard.save_due());
  // At once, if the pieces have the version already.
  cluster.send(0, save_frame(0, 1));
  CHECK(shard.save_due() == 1);
}

TEST_CASE("a save waits for what so many other workers write") {
  const bool applies = GENERATE(true, false);
  CAPTURE(applies);
  ShardCluster cluster({.workers = 3, .optimizer = applies ? "momentum" : "", .save_every = 1});
  const Layout layout = test::small_layout(1);
  cluster.open(layout);
  cluster.step(layout, 0, gradients(layout, 3, 1));
  server::Shard& shard = cluster.shard(0);
  const auto written = [&](std::uint32_t worker, std::uint64_t version) {
    Frame frame = save_frame(worker, version);
    frame.header.type = FrameType::saved;
    return cluster.send(0, std::move(frame));
  };
  Frame save = save_frame(0, 1);
  save.header.version = 2;
  CHECK(written(2, 1).empty());  // before worker 0 asks
  CHECK(cluster.send(0, std::move(save)).empty());
  CHECK(written(2, 1).empty());
  CHECK(written(1, 0).empty());  // of another version
  CHECK_FALSE(shard.save_due());
  CHECK(written(1, 1).empty());
  REQUIRE(shard.save_due() == 1);
  CHECK(shard.state().empty() == !applies);
  std::vector<Outgoing> replies;
  shard.saved(replies);
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].to == Peer{Role::worker, 0});
  check_failed(written(0, 1), "nobody asked");
  check_failed(written(3, 1), "no worker of this job");
  Frame others = save_frame(0, 1);
  others.header.version = 3;
  check_failed(cluster.send(0, std::move(others)), "3 other workers of 3");
  CHECK_FALSE(shard.save_due());
}

TEST_CASE("who may not ask, and what cannot be saved") {
  const Layout layout = test::small_layout(1);
  ShardCluster cluster({.workers = 2, .save_every = 1});
  check_failed(cluster.send(0, save_frame(0, 0)), "before any layout");
  cluster.open(layout);
  check_failed(cluster.send(0, save_frame(1, 0)), "worker 0 says when to save");
  check_failed(cluster.send(0, save_frame(2, 0)), "no worker of this job");
  cluster.step(layout, 0, gradients(layout, 2, 1));
  check_failed(cluster.send(0, save_frame(0, 0)), "version 0 is past");
  CHECK_FALSE(cluster.shard(0).save_due());
  ShardCluster without({.workers = 1});
  without.open(layout);
  check_failed(without.send(0, save_frame(0, 0)), "nothing to save here");
  ShardCluster means({.workers = 1, .optimizer = "", .save_every = 1});
  means.open(layout);
  check_failed(means.send(0, save_frame(0, 0)), "nothing to save here");
}
