// The CUDA device against the host: memory, conversions, sums, and sequences of kernels.
#include <cstddef>
#include <vector>

#include "on_device.h"

using namespace psring;
using namespace psring::test;

TEST_CASE("vectors on a device: copies, conversions, sums") {
  for (const DType type : kTypes)
    for (const std::size_t size : {1, 7, 8, 1000, 4099}) {
      const Values x = noise(type, size, 1);
      const Values y = noise(type, size, 2);
      const OnDevice a(type, x);
      const OnDevice b(type, y);
      CHECK(a.get() == x);
      const OnDevice wide(DType::f32, size);
      copy(ConstElements(a), Elements(wide));
      CHECK(wide.get() == x);
      const OnDevice back(type, size);
      copy(ConstElements(wide), Elements(back));
      CHECK(back.get() == x);

      add(Elements(a), ConstElements(b));
      Values sum(size);
      std::vector<float> rounded(size);
      for (std::size_t i = 0; i < size; ++i) rounded[i] = static_cast<float>(x[i]) + static_cast<float>(y[i]);
      round_to(type, rounded);
      CHECK(a.get() == Values(rounded.begin(), rounded.end()));

      multiply(Elements(b), 0.5F);
      for (std::size_t i = 0; i < size; ++i) sum[i] = y[i] / 2;
      check_close(b.get(), sum, type);
      clear(Elements(b));
      CHECK(b.get() == Values(size));
    }
  const OnDevice floats(DType::f32, Values{1.00390625, -3.1415926});
  device().round(DType::bf16, floats);
  CHECK(floats.get() == Values{1.0, -3.140625});
}

TEST_CASE("the host does not read elements of a device by accident") {
  const OnDevice a(DType::f32, Values{1, 2});
  CHECK_THROWS_WITH(Elements(a).as<float>(), Catch::Contains("elements of a device"));
}

TEST_CASE("a sequence of kernels that comes again does the same, as a graph or one by one") {
  constexpr std::size_t kSize = 1000;
  const Values x = noise(DType::f32, kSize, 1);
  for (const bool graphs : {true, false}) {
    device().use_graphs(graphs);
    const std::size_t before_all = device().graphs_launched();
    const OnDevice sum(DType::f32, x);
    const OnDevice other(DType::f32, Values(kSize, 1));
    Values expected = x;
    for (std::size_t round = 0; round < 6; ++round) {
      const float factor = round == 4 ? 0.25F : 0.5F;  // what changes is not that sequence
      multiply(sum, factor);
      add(sum, ConstElements(other));
      round_to(DType::bf16, sum);
      copy(ConstElements(other), other);  // what is no kernel ends a sequence
      clear(other);
      add(other, ConstElements(sum));
      multiply(other, 2);
      std::vector<float> bits(kSize);
      for (std::size_t i = 0; i < kSize; ++i) {
        const double before = round == 0 ? 1 : 2 * expected[i];
        bits[i] = static_cast<float>(static_cast<float>(expected[i]) * factor + static_cast<float>(before));
      }
      round_to(DType::bf16, bits);
      expected.assign(bits.begin(), bits.end());
      CHECK(sum.get() == expected);
    }
    // Each round has two sequences. From round 1 on, both leave as graphs, but for the first one in round 4, which
    // differs.
    CHECK(device().graphs_launched() - before_all == (graphs ? 9 : 0));
  }
  device().use_graphs(true);
}

TEST_CASE("memory that cannot be pinned is said to be none") {
  std::vector<std::byte> memory(4096);
  CHECK(device().pin(memory) != nullptr);
  CHECK(device().pin({}) == nullptr);
}

TEST_CASE("more memory than a device has is an error that says how much there is") {
  CHECK_THROWS_WITH(device().allocate(std::size_t{1} << 46, Category::activations),
                    Catch::Contains("cudaMalloc: no room for 67108864 MiB"));
}
