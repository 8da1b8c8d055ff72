#include <algorithm>
#include <array>
#include <concepts>
#include <cstring>
#include <type_traits>

#include <psring/common/base/text/error.h>
#include <psring/ring/reduce_op.h>

namespace psring::ring {
namespace {

/// Elements that are accumulated at a time, so that the accumulator stays in the first-level cache.
constexpr std::size_t kBlock = 1024;

using OpKind = ReduceOp::Kind;

/// Integers wrap round instead of overflowing.
template <class T, class F>
T wrapping(T a, T b, F f) {
  if constexpr (std::integral<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(f(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return f(a, b);
  }
}

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    return wrapping(a, b, [](auto x, auto y) { return static_cast<decltype(x)>(x + y); });
  }
};
struct Product {
  template <class T>
  T operator()(T a, T b) const {
    // Through u64: the product of two u16 would have the type int, which may overflow.
    if constexpr (std::integral<T>)
      return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    else
      return a * b;
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct LogicalAnd {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a != 0 && b != 0);
  }
};
struct LogicalOr {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a != 0 || b != 0);
  }
};
struct LogicalXor {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>((a != 0) != (b != 0));
  }
};
struct BitAnd {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct BitOr {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct BitXor {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};
template <bool kMax>
struct Locate {
  template <class T>
  Located<T> operator()(const Located<T>& a, const Located<T>& b) const {
    const T x = a.value;
    const T y = b.value;
    if (kMax ? x < y : y < x) return b;
    if (kMax ? y < x : x < y) return a;
    return a.index <= b.index ? a : b;
  }
};

template <class T>
inline constexpr bool kIs16Bit = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
/// The type of the arithmetic: f32 for the 16-bit floats.
template <class T>
using Computed = std::conditional_t<kIs16Bit<T>, float, T>;

template <class T>
void load(const std::byte* from, Computed<T>* to, std::size_t count) {
  if constexpr (kIs16Bit<T>)
    widen(reinterpret_cast<const T*>(from), to, count);
  else
    std::memcpy(to, from, count * sizeof(T));
}

template <class T>
void store(const Computed<T>* from, std::byte* to, std::size_t count) {
  if constexpr (kIs16Bit<T>)
    narrow(from, reinterpret_cast<T*>(to), count);
  else
    std::memcpy(to, from, count * sizeof(T));
}

template <class T, class Op>
void accumulate(const std::byte* from, Computed<T>* into, std::size_t count, Op op) {
  if constexpr (kIs16Bit<T>) {
    std::array<float, kBlock> wide;
    widen(reinterpret_cast<const T*>(from), wide.data(), count);
    for (std::size_t i = 0; i < count; ++i) into[i] = op(into[i], wide[i]);
  } else {
    const T* values = reinterpret_cast<const T*>(from);
    for (std::size_t i = 0; i < count; ++i) into[i] = op(into[i], values[i]);
  }
}

using Sources = std::span<const std::byte* const>;
using Targets = std::span<std::byte* const>;

/// A few sources in one pass, without an accumulator in memory. `finish`: from the sum to the stored value.
template <std::size_t kSources, std::size_t kTargets, class T, class Op, class Finish>
void reduce_few(Sources from, Targets to, std::size_t count, Op op, Finish finish) {
  std::array<const T*, kSources> sources;
  std::array<T*, kTargets> targets;
  for (std::size_t r = 0; r < kSources; ++r) sources[r] = reinterpret_cast<const T*>(from[r]);
  for (std::size_t r = 0; r < kTargets; ++r) targets[r] = reinterpret_cast<T*>(to[r]);
#pragma GCC ivdep  // a destination is the same memory as a source, or does not overlap it
  for (std::size_t i = 0; i < count; ++i) {
    T value = sources[0][i];
    for (std::size_t r = 1; r < kSources; ++r) value = op(value, sources[r][i]);
    value = finish(value);
    for (std::size_t r = 0; r < kTargets; ++r) targets[r][i] = value;
  }
}

template <class T, class Op>
void reduce_any(Sources from, Targets to, std::size_t count, Op op, double mean_factor, bool mean) {
  std::array<Computed<T>, kBlock> sum;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t size = std::min(kBlock, count - begin);
    const std::size_t offset = begin * sizeof(T);
    load<T>(from[0] + offset, sum.data(), size);
    for (const std::byte* source : from.subspan(1)) accumulate<T>(source + offset, sum.data(), size, op);
    if constexpr (std::floating_point<Computed<T>>) {
      if (mean)
        for (std::size_t i = 0; i < size; ++i) sum[i] *= static_cast<Computed<T>>(mean_factor);
    }
    for (std::byte* target : to) store<T>(sum.data(), target + offset, size);
  }
}

struct Reduction {
  Sources from;
  Targets to;
  std::size_t count;
  double mean_factor;
};

/// The cases of 2, 3 and 4 ranks: into all of them, or into one. Returns whether it was one of these.
template <class T, class Op, class Finish>
bool run_few(const Reduction& call, Op op, Finish finish) {
  const auto run = [&]<std::size_t kSources>(std::integral_constant<std::size_t, kSources>) {
    if (call.from.size() != kSources) return false;
    if (call.to.size() == kSources)
      reduce_few<kSources, kSources, T>(call.from, call.to, call.count, op, finish);
    else if (call.to.size() == 1)
      reduce_few<kSources, 1, T>(call.from, call.to, call.count, op, finish);
    else
      return false;
    return true;
  };
  return run(std::integral_constant<std::size_t, 2>()) || run(std::integral_constant<std::size_t, 3>()) ||
         run(std::integral_constant<std::size_t, 4>());
}

template <class T, class Op>
void run(const Reduction& call, Op op, bool mean = false) {
  if constexpr (std::is_arithmetic_v<T>) {
    const auto with = [&](auto finish) { return run_few<T>(call, op, finish); };
    if (!mean && with([](T sum) { return sum; })) return;
    if constexpr (std::floating_point<T>) {
      const T factor = static_cast<T>(call.mean_factor);
      if (mean && with([factor](T sum) { return sum * factor; })) return;
    }
  }
  reduce_any<T>(call.from, call.to, call.count, op, call.mean_factor, mean);
}

template <class T>
void run_numbers(OpKind kind, const Reduction& call) {
  switch (kind) {
    case OpKind::sum:
      return run<T>(call, Sum());
    case OpKind::mean:
      return run<T>(call, Sum(), true);
    case OpKind::product:
      return run<T>(call, Product());
    case OpKind::min:
      return run<T>(call, Min());
    case OpKind::max:
      return run<T>(call, Max());
    default:
      break;
  }
  if constexpr (std::integral<T>) {
    switch (kind) {
      case OpKind::logical_and:
        return run<T>(call, LogicalAnd());
      case OpKind::logical_or:
        return run<T>(call, LogicalOr());
      case OpKind::logical_xor:
        return run<T>(call, LogicalXor());
      case OpKind::bit_and:
        return run<T>(call, BitAnd());
      case OpKind::bit_or:
        return run<T>(call, BitOr());
      case OpKind::bit_xor:
        return run<T>(call, BitXor());
      default:
        break;
    }
  }
}

/// Compares 16-bit floats by their values as f32.
template <class T>
struct Wide {
  T value;
  bool operator<(const Wide& other) const { return static_cast<float>(value) < static_cast<float>(other.value); }
};
template <class T>
using Comparable = std::conditional_t<kIs16Bit<T>, Wide<T>, T>;

template <class T>
void run_located(OpKind kind, const Reduction& call) {
  using Element = Located<Comparable<T>>;
  static_assert(sizeof(Element) == 2 * sizeof(std::int64_t));
  if (kind == OpKind::maxloc)
    run<Element>(call, Locate<true>());
  else
    run<Element>(call, Locate<false>());
}

template <class T>
void run_type(OpKind kind, bool located, const Reduction& call) {
  if (located)
    run_located<T>(kind, call);
  else
    run_numbers<T>(kind, call);
}

void run_own(const ReduceOp& op, ElementType type, const Reduction& call) {
  std::array<std::byte, 2 * sizeof(std::int64_t) * kBlock> sum;
  for (std::size_t begin = 0; begin < call.count; begin += kBlock) {
    const std::size_t size = std::min(kBlock, call.count - begin);
    const std::size_t offset = begin * type.bytes();
    std::memcpy(sum.data(), call.from[0] + offset, size * type.bytes());
    for (const std::byte* source : call.from.subspan(1))
      op.combine()({sum.data(), size, type}, {source + offset, size, type});
    for (std::byte* target : call.to) std::memcpy(target + offset, sum.data(), size * type.bytes());
  }
}

}  // namespace

void reduce(const ReduceOp& op, ElementType type, Sources from, Targets to, std::size_t count, double mean_factor) {
  const Reduction call{from, to, count, mean_factor};
  if (op.kind() == OpKind::own) return run_own(op, type, call);
  switch (type.dtype) {
    case DType::f32:
      return run_type<float>(op.kind(), type.located, call);
    case DType::f64:
      return run_type<double>(op.kind(), type.located, call);
    case DType::f16:
      return run_type<Half>(op.kind(), type.located, call);
    case DType::bf16:
      return run_type<BFloat16>(op.kind(), type.located, call);
    case DType::i8:
      return run_type<std::int8_t>(op.kind(), type.located, call);
    case DType::u8:
      return run_type<std::uint8_t>(op.kind(), type.located, call);
    case DType::i32:
      return run_type<std::int32_t>(op.kind(), type.located, call);
    case DType::i64:
      return run_type<std::int64_t>(op.kind(), type.located, call);
  }
}

}  // namespace psring::ring
