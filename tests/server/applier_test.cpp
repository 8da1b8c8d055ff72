// HostApplier alone, against the optimizer over plain vectors.
#include <memory>
#include <optional>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/text/spec.h>
#include <psring/optim/norm.h>
#include <psring/server/store/host_applier.h>
#include <psring/tests/support/shard_cluster.h>
#include <psring/tests/support/values.h>

using namespace psring;
using server::HostApplier;
using server::PieceUpdate;
using server::ShardOptions;

namespace {

constexpr std::size_t kElements = 3 * 4096 + 256;  // blocks, and a part of one
constexpr Range kPlace{512, 512 + kElements};

Layout layout_of(std::size_t micros) {
  Layout layout = make_layout({{"u", {{{"a", {kPlace.end + 256}, {}}, 0}}}}, 1);
  layout.pushes = micros;
  return layout;
}

struct Scene {
  explicit Scene(std::size_t micros = 1) {
    options.optimizer = rule.get();
    options.aggregator = aggregator.get();
    applier.emplace(options, layout_of(micros), parallel, ledger);
  }

  PieceUpdate update(std::vector<std::byte*>& copies) {
    return {.terms = {.count = 1, .lr = 0.1F, .gradient_scale = 1},
            .place = kPlace,
            .now = Elements(now),
            .next = Elements(next),
            .copies = copies,
            .compensate_from = {}};
  }

  /// The update in one go, from zero state.
  std::vector<float> expected(const std::vector<float>& gradient) const {
    std::vector<float> state(kElements);
    std::vector<float> out(kElements);
    optim::Optimizer::State slots;
    slots.slot[0] = state;
    rule->apply({.count = 1, .lr = 0.1F, .gradient_scale = 1}, now, gradient, slots, out);
    return out;
  }

  std::unique_ptr<optim::Optimizer> rule = test::make_rule("momentum");
  std::unique_ptr<server::Aggregator> aggregator = server::make_mean(Spec::parse("--aggregate", "mean"));
  ShardOptions options;
  Parallel parallel{2};
  MemoryLedger ledger;
  std::optional<HostApplier> applier;
  std::vector<float> now = test::normal_values(kElements, 1);
  std::vector<float> next = std::vector<float>(kElements);
  std::vector<float> a = test::normal_values(kElements, 2);
  std::vector<float> b = test::normal_values(kElements, 3);
};

std::vector<float> mean_of(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> mean(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) mean[i] = (a[i] + b[i]) * 0.5F;
  return mean;
}

}  // namespace

TEST_CASE("pushed gradients are aggregated and applied, and stored for workers that wait") {
  Scene scene;
  std::vector<float> waiting(kElements);
  std::vector<std::byte*> copies = {reinterpret_cast<std::byte*>(waiting.data())};
  const std::vector<ConstElements> gradients = {ConstElements(scene.a), ConstElements(scene.b)};
  scene.applier->apply_pushed(gradients, scene.update(copies));
  CHECK((scene.next == scene.expected(mean_of(scene.a, scene.b))));
  CHECK((waiting == scene.next));
  const Elements state = scene.applier->state(0, kPlace);
  CHECK(state.as<float>()[5] == mean_of(scene.a, scene.b)[5]);
  CHECK(scene.applier->state(0, {0, 512}).as<float>()[511] == 0);  // other pieces are untouched
}

TEST_CASE("the mean of two micro-batches is their sum, and is applied alike") {
  Scene scene(2);
  std::vector<std::byte*> none;
  const std::vector<ConstElements> first = {ConstElements(scene.a)};
  const std::vector<ConstElements> second = {ConstElements(scene.b)};
  scene.applier->add_to_mean(first, kPlace, true);
  scene.applier->add_to_mean(second, kPlace, false);
  std::vector<float> sum(kElements);
  for (std::size_t i = 0; i < kElements; ++i) sum[i] = scene.a[i] + scene.b[i];
  scene.applier->apply_mean(scene.update(none));
  CHECK((scene.next == scene.expected(sum)));
}

TEST_CASE("delay compensation corrects the gradient by the way that the parameters went") {
  Scene scene;
  scene.options.remedy = parse_remedy("dc-asgd:lambda=0.5");
  std::vector<std::byte*> none;
  const std::vector<float> then = test::normal_values(kElements, 4);
  std::vector<float> corrected = scene.a;
  for (std::size_t i = 0; i < kElements; ++i) corrected[i] += 0.5F * scene.a[i] * scene.a[i] * (scene.now[i] - then[i]);
  PieceUpdate update = scene.update(none);
  update.compensate_from = ConstElements(std::span<const float>(then));
  const std::vector<ConstElements> gradients = {ConstElements(scene.a)};
  scene.applier->apply_pushed(gradients, update);
  CHECK((scene.next == scene.expected(corrected)));
}

TEST_CASE("without an optimizer the aggregate itself is written") {
  Scene scene;
  scene.options.optimizer = nullptr;
  scene.applier.emplace(scene.options, layout_of(1), scene.parallel, scene.ledger);
  std::vector<std::byte*> none;
  const std::vector<ConstElements> gradients = {ConstElements(scene.a), ConstElements(scene.b)};
  scene.applier->apply_pushed(gradients, scene.update(none));
  CHECK((scene.next == mean_of(scene.a, scene.b)));
}

TEST_CASE("a norm counts the tensors that are counted here, whatever their owner's range") {
  const std::vector<float> gradient = test::normal_values(8 * kCut, 4);
  for (const std::size_t owners : {1, 2, 3}) {
    optim::ExactSum sum;
    for (std::uint32_t rank = 0; rank < owners; ++rank) {
      std::vector<UnitSpec> units(2);
      units[0] = {"u", {{{"a", {3, 100}, {}}, 0}, {{"b", {kCut}, {}}, 1}, {{"c", {2 * kCut}, {}}, 2}}};
      units[1] = {"v", {{{"d", {kCut}, {}}, 3}}};
      units[0].tensors[1].counted = false;
      Scene scene;
      scene.options.rank = rank;
      scene.options.servers = static_cast<std::uint32_t>(owners);
      scene.options.clip_norm = 1;
      const Layout layout = make_layout(units, owners);
      HostApplier applier(scene.options, layout, scene.parallel, scene.ledger);
      std::size_t offset = 0;
      for (std::size_t unit = 0; unit < 2; ++unit) {
        const Range owned = layout.partition(unit).range(rank);
        std::vector<float> own(owned.size());
        for (const TensorLayout& tensor : layout.units[unit].tensors)
          for (std::size_t i = 0; i < tensor.spec.elements(); ++i)
            if (const std::size_t at = tensor.offset + i; at >= owned.begin && at < owned.end)
              own[at - owned.begin] = gradient[tensor.id * 2 * kCut + i];
        const ConstElements pushed = std::span<const float>(own);
        applier.add_to_mean(std::span(&pushed, 1), {offset, offset + own.size()}, true);
        offset += own.size();
      }
      applier.add_square_sums(sum);
    }
    optim::ExactSum expected;
    for (const auto& [id, elements] : {std::pair<std::size_t, std::size_t>{0, 300}, {2, 2 * kCut}, {3, kCut}})
      optim::add_square_sum(std::span(gradient).subspan(id * 2 * kCut, elements), expected);
    CHECK(sum.value() == expected.value());
  }
}
