#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/proc/job.h>
#include <psring/worker/exchange/transient_units.h>

using namespace psring;
using namespace psring::worker;

namespace {

/// A worker whose group shares no memory: its links are TCP.
struct Worker {
  explicit Worker(const std::vector<std::size_t>& sizes) {
    std::vector<UnitSpec> specs;
    for (const std::size_t elements : sizes) {
      const std::string name = std::to_string(specs.size());
      TensorLayout tensor;
      tensor.spec = {.name = "t" + name, .shape = {elements}, .init = {}};
      specs.push_back({.name = name, .tensors = {tensor}});
    }
    layout = make_layout(std::move(specs), 2);
    buffers.resize(layout.units.size());
    world.units = buffers;
  }

  JobOptions job;
  Layout layout;
  MemoryLedger memory;
  SystemClock clock;
  Events events{clock};
  std::vector<UnitBuffers> buffers;
  Plan plan{.job = job, .layout = layout};
  World world{.memory = memory, .clock = clock, .events = events};
};

}  // namespace

TEST_CASE("a unit that comes again finds the pages of the units before, with zeros") {
  Worker worker({100'000, 50'000});
  TransientUnits units(worker.plan, worker.world, Presence::Values::parameters);
  units.allocate(0);
  const std::byte* const first = units.values(0).data();
  std::memset(units.values(0).data(), 0xff, worker.layout.parameter_bytes(0));
  units.free(0);
  for (const UnitId unit : {UnitId{1}, UnitId{0}}) {
    units.allocate(unit);
    CHECK(units.values(unit).data() == first);
    const std::span<const float> values = units.values(unit).as<float>();
    CHECK(std::all_of(values.begin(), values.end(), [](float value) { return value == 0; }));
    CHECK(worker.memory.current_bytes(Category::communication) == worker.layout.parameter_bytes(unit));
    units.free(unit);
  }
  CHECK(worker.memory.current_bytes(Category::communication) == 0);
}

TEST_CASE("units of all sizes find room in any order") {
  std::mt19937 random(7);
  std::vector<std::size_t> sizes;
  for (int unit = 0; unit < 24; ++unit) sizes.push_back(1 + random() % (unit % 3 == 0 ? 40'000 : 900));
  Worker worker(sizes);
  TransientUnits units(worker.plan, worker.world, Presence::Values::gradients);
  for (int turn = 0; turn < 20'000; ++turn) {
    const UnitId unit = random() % sizes.size();
    if (units.present(unit))
      units.free(unit);
    else
      units.allocate(unit);
  }
  for (UnitId unit = 0; unit < sizes.size(); ++unit)  // and all of them together
    if (!units.present(unit)) units.allocate(unit);
  CHECK(worker.memory.current_bytes(Category::communication) == worker.layout.gradient_bytes());
}
