#include <cstring>
#include <functional>

#include <psring/common/base/elements.h>

namespace psring {
namespace {

void check_sizes(std::size_t from, std::size_t to) { check(from == to, "{} elements into {}", from, to); }

/// Computes into = with(into, values) in f32, and rounds each result once.
void combine(Elements into, ConstElements values, auto with) {
  for_each_widened(values, [&](std::span<const float> part, Range range) {
    for_each_widened(into.part(range), [&](std::span<const float> before, Range block) {
      float after[kElementsBlock];
      // One iteration, except for f32.
      for (std::size_t begin = block.begin; begin < block.end; begin += kElementsBlock) {
        const Range now{begin, std::min(begin + kElementsBlock, block.end)};
        for (std::size_t i = now.begin; i < now.end; ++i) after[i - begin] = with(before[i - block.begin], part[i]);
        narrow({after, now.size()}, into.part(range).part(now));
      }
    });
  });
}

[[noreturn]] void fail_type(DType type) { fail(ErrorKind::bug, "no elements are of type {}", name_of(type)); }

}  // namespace

void widen(ConstElements from, std::span<float> to) {
  check_sizes(from.size(), to.size());
  switch (from.type()) {
    case DType::f32:
      return copy(from, Elements(to));
    case DType::f16:
      return widen(from.as<Half>().data(), to.data(), to.size());
    case DType::bf16:
      return widen(from.as<BFloat16>().data(), to.data(), to.size());
    default:
      fail_type(from.type());
  }
}

void narrow(std::span<const float> from, Elements to) {
  check_sizes(from.size(), to.size());
  switch (to.type()) {
    case DType::f32:
      return copy(ConstElements(from), to);
    case DType::f16:
      return narrow(from.data(), to.as<Half>().data(), from.size());
    case DType::bf16:
      return narrow(from.data(), to.as<BFloat16>().data(), from.size());
    default:
      fail_type(to.type());
  }
}

void round_to(DType type, Elements values) {
  if (values.processor() != nullptr) return values.processor()->round(type, values);
  if (type == DType::f32) return;
  const std::span<float> all = values.as<float>();
  std::uint16_t block[kElementsBlock];
  for (std::size_t begin = 0; begin < all.size(); begin += kElementsBlock) {
    const std::span<float> part = all.subspan(begin, std::min(kElementsBlock, all.size() - begin));
    const Elements rounded(reinterpret_cast<std::byte*>(block), part.size(), type);
    narrow(part, rounded);
    widen(rounded, part);
  }
}

void convert(ConstElements from, Elements to) {
  if (from.type() == to.type() || to.processor() != nullptr) return copy(from, to);
  to.type() == DType::f32 ? widen(from, to.as<float>()) : narrow(from.as<float>(), to);
}

void copy(ConstElements from, Elements to) {
  check_sizes(from.size(), to.size());
  if (Processor* const processor = to.processor() != nullptr ? to.processor() : from.processor())
    return processor->copy(from, to);
  check(from.type() == to.type(), "{} elements into {}", name_of(from.type()), name_of(to.type()));
  if (!from.empty()) std::memmove(to.data(), from.data(), from.size_bytes());
}

void clear(Elements values) {
  if (values.processor() != nullptr) return values.processor()->clear(values);
  if (!values.empty()) std::memset(values.data(), 0, values.size_bytes());
}

void multiply(Elements values, float factor) {
  if (values.processor() != nullptr) return values.processor()->multiply(values, factor);
  float after[kElementsBlock];
  for (std::size_t begin = 0; begin < values.size(); begin += kElementsBlock) {
    const Elements block = values.part({begin, std::min(begin + kElementsBlock, values.size())});
    const std::span now(after, block.size());
    widen(block, now);
    for (float& value : now) value *= factor;
    narrow(now, block);
  }
}

void add(Elements sum, ConstElements values) {
  check_sizes(values.size(), sum.size());
  if (sum.processor() != nullptr) return sum.processor()->add(sum, values);
  combine(sum, values, std::plus<>());
}

void subtract(Elements from, ConstElements values) {
  check_sizes(values.size(), from.size());
  if (from.processor() != nullptr) return from.processor()->subtract(from, values);
  combine(from, values, std::minus<>());
}

}  // namespace psring
