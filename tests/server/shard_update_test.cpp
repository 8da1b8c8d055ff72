// A step of all shards, against the optimizer of one process that holds everything.
#include <catch2/catch.hpp>

#include <psring/common/base/text/spec.h>
#include <psring/optim/schedule.h>
#include <psring/tests/support/shard_cluster.h>
#include <psring/tests/support/values.h>
#include <psring/worker/exchange/local_optimizer.h>

using namespace psring;
using namespace psring::test;

namespace {

constexpr std::uint64_t kSteps = 5;

/// A worker's gradient of a unit: zero in the padding, as a model's gradient, and the same for any number of owners.
std::vector<float> gradient(const UnitLayout& unit, std::uint64_t seed) {
  std::vector<float> values(unit.elements);
  for (const TensorLayout& tensor : unit.tensors) {
    const auto part = normal_values(tensor.spec.elements(), seed + tensor.id);
    std::copy(part.begin(), part.end(), values.begin() + static_cast<std::ptrdiff_t>(tensor.offset));
  }
  return values;
}

std::vector<std::vector<std::vector<float>>> gradients(const Layout& layout, std::size_t workers, std::uint64_t step) {
  std::vector<std::vector<std::vector<float>>> all(workers);
  for (std::size_t w = 0; w < workers; ++w)
    for (const UnitLayout& unit : layout.units) all[w].push_back(gradient(unit, 1000 * step + 100 * w));
  return all;
}

/// The units after kSteps steps of LocalOptimizer with the mean in worker order.
std::vector<std::vector<float>> local(const ShardRules& rules) {
  const Layout layout = small_layout(1);
  const auto rule = make_rule(rules.optimizer);
  const auto schedule = optim::make_schedule(Spec::parse("--schedule", "step:every=2,gamma=0.5"), 100);
  MemoryLedger ledger;
  worker::LocalOptimizer optimizer({rule.get(), schedule.get(), rules.lr, rules.clip_norm}, layout, ledger);
  std::vector<std::vector<float>> parameters;
  for (const UnitLayout& unit : layout.units) {
    parameters.emplace_back(unit.elements);
    initialise(unit, {0, unit.elements}, 3, parameters.back());
  }
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    auto all = gradients(layout, rules.workers, step);
    std::vector<worker::UnitBuffers> units;
    for (std::size_t unit = 0; unit < parameters.size(); ++unit) {
      std::vector<float>& sum = all[0][unit];
      for (std::size_t w = 1; w < all.size(); ++w)
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += all[w][unit][i];
      for (float& value : sum) value *= 1.0F / static_cast<float>(all.size());
      units.push_back({parameters[unit], sum});
    }
    optimizer.update_all({step}, units);
  }
  return parameters;
}

}  // namespace

TEST_CASE("1, 2 and 3 shards are bitwise identical to one process, for every rule, clipped or not") {
  const auto optimizer =
      GENERATE(values<std::string>({"sgd", "momentum", "adagrad", "rmsprop", "adam", "adamw", "lamb"}));
  const auto clip_norm = GENERATE(0.0, 1.0, 1e6);
  ShardRules rules{.workers = 3, .optimizer = optimizer, .lr = 0.05, .clip_norm = clip_norm};
  const std::vector<std::vector<float>> reference = local(rules);
  for (const std::size_t servers : {1, 2, 3}) {
    for (const std::uint64_t order : {1, 2}) {
      CAPTURE(optimizer, clip_norm, servers, order);
      rules.servers = servers;
      rules.threads = 1 + order % 2;
      const Layout layout = small_layout(servers);
      ShardCluster cluster(rules, order);
      cluster.open(layout);
      for (std::uint64_t step = 0; step < kSteps; ++step) cluster.step(layout, step, gradients(layout, 3, step));
      for (std::size_t unit = 0; unit < reference.size(); ++unit) {
        std::vector<float> values = cluster.pull(layout, unit, kSteps);
        REQUIRE(values.size() >= reference[unit].size());
        values.resize(reference[unit].size());
        CHECK((values == reference[unit]));
      }
      for (std::size_t server = 0; server < servers; ++server) CHECK(cluster.shard(server).version() == kSteps);
    }
  }
}

TEST_CASE("clipping has an effect where the norm is larger, and none where it is not") {
  ShardRules rules{.workers = 2, .optimizer = "sgd"};
  const auto plain = local(rules);
  rules.clip_norm = 1.0;
  CHECK((local(rules) != plain));
  rules.clip_norm = 1e6;
  CHECK((local(rules) == plain));
}

TEST_CASE("under clipping no unit is updated before all are there") {
  const Layout layout = small_layout(2);
  ShardCluster cluster({.servers = 2, .workers = 1, .clip_norm = 1.0});
  cluster.open(layout);
  const auto g = gradients(layout, 1, 0);
  const std::vector<Piece> pieces = make_pieces(layout);
  for (std::size_t i = 0; i + 1 < pieces.size(); ++i) {
    CHECK(cluster.send(pieces[i].owner, push_frame(0, pieces[i], 0, g[0][pieces[i].unit])).empty());
    for (std::size_t unit = 0; unit < 2; ++unit) CHECK(cluster.pull(layout, unit, 1).empty());
  }
  const Piece& last = pieces.back();
  CHECK(!cluster.send(last.owner, push_frame(0, last, 0, g[0][last.unit])).empty());  // waiting pulls are answered
  for (std::size_t unit = 0; unit < 2; ++unit) CHECK_FALSE(cluster.pull(layout, unit, 1).empty());
}

TEST_CASE("a gradient that is not finite spoils the step for all shards alike") {
  const Layout layout = small_layout(2);
  ShardCluster cluster({.servers = 2, .workers = 1, .clip_norm = 1.0});
  cluster.open(layout);
  auto g = gradients(layout, 1, 0);
  g[0][1][3] = std::numeric_limits<float>::infinity();
  cluster.step(layout, 0, g);
  for (std::size_t unit = 0; unit < 2; ++unit) {
    const std::vector<float> values = cluster.pull(layout, unit, 1);
    CHECK(std::isnan(values[0]));
  }
}
