// Exercise 10: 8 bits with a scale and a zero point.
#include <algorithm>
#include <cmath>

#include <psring/cli/check/exercise.h>
#include <psring/cli/check/exercises.h>
#include <psring/common/base/rng.h>

namespace psring::cli {
namespace {

using Quantize = void(std::span<const float>, exercise::Quantized&);
using Dequantize = void(const exercise::Quantized&, std::span<float>);
using Ends = std::pair<float, float>;  ///< of a range of values

/// A block and the values that came back.
struct Coded {
  exercise::Quantized block;
  std::vector<float> back;
};

Coded code(const Submission& submission, const std::vector<float>& values) {
  Coded coded;
  submission.solution->function<Quantize>("quantize")(values, coded.block);
  if (coded.block.codes.size() != values.size())
    refuse({"quantize of {} values made {} codes", "quantize 对 {} 个值生成了 {} 个码"}, values.size(),
           coded.block.codes.size());
  if (!(coded.block.scale > 0) || !std::isfinite(coded.block.scale))
    refuse({"the scale of values from {} to {} is {}; it has to be finite and above 0",
            "值从 {} 到 {} 时，scale 是 {}；它必须有限且大于 0"},
           *std::min_element(values.begin(), values.end()), *std::max_element(values.begin(), values.end()),
           coded.block.scale);
  coded.back.assign(values.size(), std::nanf(""));
  submission.solution->function<Dequantize>("dequantize")(coded.block, coded.back);
  return coded;
}

std::vector<float> random_values(std::size_t count, float low, float high, std::uint64_t seed) {
  const CounterRng random({.seed = seed, .purpose = Purpose::test});
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = low + (high - low) * static_cast<float>(random.bits(i) >> 8) * 0x1p-24F;
  values[count / 3] = low;
  values[count / 2] = high;
  return values;
}

/// The likely mistake behind a value that came back wrong. `step`: the width of the values over 255.
Text cause_of(const Coded& coded, std::size_t i, float step) {
  const exercise::Quantized& block = coded.block;
  const float decoded = block.scale * static_cast<float>(block.codes[i] - block.zero_point);
  if (std::isnan(coded.back[i])) return {"dequantize has not written it", "dequantize 没有写它"};
  if (std::abs(coded.back[i] - decoded) > 1e-5F * std::abs(decoded) + 1e-6F)
    return {"dequantize did not return scale * (code - zero point)", "dequantize 返回的不是 scale * (码 - 零点)"};
  if (i == coded.back.size() / 2 && block.codes[i] < 10)  // the largest value has a small code
    return {"a code that leaves 0 to 255 wraps around: clamp it before it becomes 8 bits",
            "超出 0 到 255 的码会回绕：变成 8 位之前先截断"};
  if (std::abs(block.scale / step - 1) > 0.001F)
    return {"the scale is not width / 255: 256 codes have 255 steps between them, and the range has to contain 0",
            "scale 不是 宽度 / 255：256 个码之间有 255 个步长，范围必须包含 0"};
  return {"round to the nearest code, not downwards; a conversion to an integer cuts off",
          "应舍入到最近的码；转换成整数会截断"};
}

/// Every value comes back within half a step of the smallest possible scale, the width over 255 steps.
void check_error(const Submission& submission, std::initializer_list<Ends> ranges) {
  for (const auto& [low, high] : ranges) {
    const std::vector<float> values = random_values(300, low, high, 1);
    const Coded coded = code(submission, values);
    const float step = (std::max(high, 0.0F) - std::min(low, 0.0F)) / 255;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float error = std::abs(coded.back[i] - values[i]);
      const bool end = i == values.size() / 3 || i == values.size() / 2;  // its code may have been clamped
      if (error <= (end ? 1.001F : 0.501F) * step) continue;
      refuse({"values from {} to {}: element {}, byte {}: {:.5g} comes back as {:.5g}, {:.2f} steps of {:.4g} away; {}",
              "值从 {} 到 {}：元素 {}，第 {} 字节：{:.5g} 还原为 {:.5g}，相差 {:.2f} 个 {:.4g} 的步长；{}"},
             low, high, i, i, values[i], coded.back[i], error / step, step, cause_of(coded, i, step));
    }
  }
}

/// Zero is frequent (padding, ReLU), so its error would add up.
void check_zero(const Submission& submission) {
  for (const auto& [low, high] : {Ends(-1.0F, 1.7F), {0.0F, 6.0F}, {2.0F, 5.0F}, {-9.0F, -4.0F}, {-0.3F, 100.0F}}) {
    std::vector<float> values = random_values(64, low, high, 2);
    values[10] = 0;
    const Coded coded = code(submission, values);
    if (coded.back[10] != 0)
      refuse({"values from {} to {}: 0 comes back as {}; the zero point has to be a code, and the range has to "
              "contain 0",
              "值从 {} 到 {}：0 还原为 {}；零点必须是一个码，范围必须包含 0"},
             low, high, coded.back[10]);
    if (coded.block.codes[10] != coded.block.zero_point)
      refuse({"values from {} to {}: the code of 0 is {}, but the zero point is {}",
              "值从 {} 到 {}：0 的码是 {}，但零点是 {}"},
             low, high, coded.block.codes[10], coded.block.zero_point);
  }
}

void check_constant(const Submission& submission) {
  for (const float value : {0.0F, 2.5F, -3.0F})
    for (const float back : code(submission, std::vector<float>(16, value)).back)
      if (!(std::abs(back - value) <= 0.01F * std::abs(value)))
        refuse({"16 values of {} come back as {}; a width of 0 needs a scale, too",
                "16 个 {} 还原为 {}；宽度为 0 时也需要 scale"},
               value, back);
}

}  // namespace

Exercise zero_point_exercise() {
  const auto both_sides = [](const Submission& submission) {
    check_error(submission, {{-1.0F, 1.0F}, {-0.1F, 3.0F}, {-7.0F, 0.5F}, {-127.5F, 127.5F}});
  };
  const auto one_side = [](const Submission& submission) {
    check_error(submission, {{0.0F, 6.0F}, {2.0F, 5.0F}, {-9.0F, -4.0F}});
  };
  return {10,
          "zero-point",
          {"8 bits with a zero point", "带零点的 8 位量化"},
          "start.cpp",
          {{{"values on both sides of 0", "0 两侧都有值"}, 30, both_sides},
           {{"values on one side of 0", "值都在 0 的一侧"}, 20, one_side, 0},
           {{"0 comes back as 0", "0 还原为 0"}, 30, check_zero, 1},
           {{"blocks of equal values", "全部相同的值"}, 20, check_constant, 2}}};
}

}  // namespace psring::cli
