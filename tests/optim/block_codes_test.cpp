// Optimizer state in 8 bits: the maps, the nearest code, and state that is stored and read again.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/rng.h>
#include <psring/optim/block_codes.h>
#include <psring/optim/rules.h>
#include <psring/optim/state_memory.h>

using namespace psring;
using namespace psring::optim;

namespace {

std::vector<float> stored(CodeMap map, const std::vector<float>& values) {
  std::vector<std::byte> blocks(code_bytes(values.size()));
  encode_blocks(map, values, blocks);
  std::vector<float> back(values.size());
  decode_blocks(map, blocks, back);
  return back;
}

/// Numbers over many decades, as moments are.
std::vector<float> numbers(CodeMap map, std::size_t n, std::uint32_t stream) {
  const CounterRng rng({.seed = 5, .tensor = stream});
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    values[i] = rng.normal(2 * i) * std::pow(10.0F, -8 * rng.uniform(2 * i + 1));
    if (map == CodeMap::squares) values[i] *= values[i];
  }
  return values;
}

constexpr CodeMap kMaps[] = {CodeMap::signed_values, CodeMap::squares};

}  // namespace

TEST_CASE("maps are the paper's dynamic trees") {
  // Decade i of the positive values: the middles of 2^i (squares: 2^(i + 1)) intervals of [0.1, 1], times 10^(i - 6).
  for (const CodeMap map : kMaps) {
    std::vector<double> expected{0, 1};
    for (int i = 0; i < 7; ++i) {
      const int intervals = (map == CodeMap::squares ? 2 : 1) << i;
      for (int j = 0; j < intervals; ++j) {
        const double low = 0.1 + 0.9 * j / intervals;
        const double high = 0.1 + 0.9 * (j + 1) / intervals;
        const double value = std::pow(10, i - 6) * (low + high) / 2;
        expected.push_back(value);
        if (map == CodeMap::signed_values && (i > 0)) expected.push_back(-value);
      }
    }
    if (map == CodeMap::signed_values) expected.push_back(-1);
    std::sort(expected.begin(), expected.end());
    const auto values = code_values(map);
    REQUIRE(expected.size() == 256);
    REQUIRE(values.size() == 256);
    for (std::size_t i = 0; i < 256; ++i) CHECK(static_cast<double>(values[i]) == Approx(expected[i]).epsilon(1e-6));
  }
}

TEST_CASE("each value gets the nearest code") {
  for (const CodeMap map : kMaps) {
    const std::vector<float> values = numbers(map, 256 * 200, 1);
    const std::vector<float> back = stored(map, values);
    const auto codes = code_values(map);
    for (std::size_t b = 0; b < values.size(); b += 256) {
      float scale = 0;
      for (std::size_t i = b; i < b + 256; ++i) scale = std::max(scale, std::abs(values[i]));
      for (std::size_t i = b; i < b + 256; ++i) {
        double best = std::numeric_limits<double>::infinity();
        for (const float code : codes) {
          if (map == CodeMap::squares && code == 0 && values[i] > 0) continue;  // a positive square stays positive
          best = std::min(best, std::abs(static_cast<double>(scale * code) - static_cast<double>(values[i])));
        }
        const double error = std::abs(static_cast<double>(back[i]) - static_cast<double>(values[i]));
        REQUIRE(error <= best + 1e-6 * static_cast<double>(scale) * 1e-1 + 1e-6 * best);
      }
    }
  }
}

TEST_CASE("storing what was read gives the same bytes") {
  for (const CodeMap map : kMaps)
    for (const float factor : {1.0F, 1e-12F, 1e-20F, 1e15F}) {
      std::vector<float> values = numbers(map, 256 * 300, 2);
      for (float& value : values) value *= factor;
      std::vector<std::byte> once(code_bytes(values.size()));
      encode_blocks(map, values, once);
      std::vector<float> back(values.size());
      decode_blocks(map, once, back);
      std::vector<std::byte> twice(once.size());
      encode_blocks(map, back, twice);
      CHECK(once == twice);
    }
}

TEST_CASE("every code survives, with both signs of the largest value") {
  for (const CodeMap map : kMaps)
    for (const float largest : {1.0F, -1.0F}) {
      if (map == CodeMap::squares && largest < 0) continue;
      const auto codes = code_values(map);
      std::vector<float> values(codes.begin(), codes.end());
      values[1] = largest;
      for (float& value : values) value *= 0.37F;
      CHECK(stored(map, values) == values);
    }
}

TEST_CASE("zeros, tiny blocks, NaN and infinity") {
  for (const CodeMap map : kMaps) {
    CHECK(stored(map, std::vector<float>(256)) == std::vector<float>(256));
    CHECK(stored(map, std::vector<float>(256, 1e-35F)) == std::vector<float>(256));
    std::vector<std::byte> zeros(code_bytes(256));
    std::vector<float> values(256, 1);
    decode_blocks(map, zeros, values);  // a fresh buffer is zero
    CHECK(std::all_of(values.begin(), values.end(), [](float value) { return value == 0; }));
    for (const float odd : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> two(512, 0.5F);
      two[3] = odd;
      const std::vector<float> back = stored(map, two);
      CHECK(std::all_of(back.begin(), back.begin() + 256, [](float value) { return std::isnan(value); }));
      CHECK(std::all_of(back.begin() + 256, back.end(), [](float value) { return value == 0.5F; }));
    }
  }
}

TEST_CASE("AdamW in 8 bits: any partition gives the same bits, near AdamW's") {
  constexpr std::size_t kElements = 256 * 24;
  const auto exact = make_adamw({.weight_decay = 0.01});
  const auto rule = make_adamw_8bit({.weight_decay = 0.01});
  CHECK(rule->state_bits() == 8);
  CHECK(slot_bytes(*rule, kElements) == 24 * 260);
  CHECK(slot_bytes(*exact, kElements) == 4 * kElements);
  const auto train = [&](const Optimizer& of, const std::vector<Range>& owners) {
    MemoryLedger memory;
    std::vector<float> w(kElements, 0.1F);
    std::vector<StateMemory> states;
    for (const Range& range : owners)
      states.emplace_back(of, range.size(),
                          [&](std::size_t bytes) { return Buffer(bytes, Category::optimizer, memory); });
    CHECK(memory.current_bytes(Category::optimizer) == 2 * slot_bytes(of, kElements));
    for (std::uint32_t step = 1; step <= 50; ++step) {
      const std::vector<float> g = numbers(CodeMap::signed_values, kElements, step);
      for (std::size_t o = 0; o < owners.size(); ++o) {
        const auto part = std::span(w).subspan(owners[o].begin, owners[o].size());
        states[o].apply({.count = step, .lr = 0.001F},
                        {.parameters = part,
                         .gradient = std::span(g).subspan(owners[o].begin, owners[o].size()),
                         .master = {},
                         .state = {},
                         .out = Elements(part)},
                        {0, owners[o].size()});
      }
    }
    return w;
  };
  const std::vector<float> one = train(*rule, {{0, kElements}});
  CHECK(one == train(*rule, {{0, 256}, {256, 256 * 9}, {256 * 9, kElements}}));
  const std::vector<float> reference = train(*exact, {{0, kElements}});
  double moved = 0;
  double error = 0;
  for (std::size_t i = 0; i < kElements; ++i) {
    moved += std::pow(static_cast<double>(reference[i]) - 0.1, 2);
    error += std::pow(static_cast<double>(one[i] - reference[i]), 2);
  }
  CHECK(error > 0);
  CHECK(std::sqrt(error / moved) < 0.25);
}
