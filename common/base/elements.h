#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include <psring/common/base/dtype.h>
#include <psring/common/base/half.h>
#include <psring/common/base/range.h>
#include <psring/common/base/text/error.h>

namespace psring {

template <class T>
inline constexpr DType kDTypeOf = DType::f32;
template <>
inline constexpr DType kDTypeOf<Half> = DType::f16;
template <>
inline constexpr DType kDTypeOf<BFloat16> = DType::bf16;

class Processor;

/// A borrowed, contiguous view of numbers in f32, f16 or bf16: parameters and gradients in the type that they are
/// stored and sent in. Arithmetic is done in f32, by the processor that owns the memory. Elements of type u8 are bytes,
/// which are only copied.
template <class Byte>
class BasicElements {
 public:
  BasicElements() = default;
  /// `processor`: owner of the memory; null for the host.
  BasicElements(Byte* data, std::size_t size, DType type, Processor* processor = nullptr)
      : data_(data), size_(size), processor_(processor), type_(type) {}
  /// Views a span or a vector of f32.
  using Float = std::conditional_t<std::is_const_v<Byte>, const float, float>;
  template <class T>
  requires(std::is_convertible_v<T*, Float*>) BasicElements(std::span<T> values)
      : data_(reinterpret_cast<Byte*>(values.data())), size_(values.size()) {}
  BasicElements(std::conditional_t<std::is_const_v<Byte>, const std::vector<float>, std::vector<float>>& values)
      : BasicElements(std::span<Float>(values)) {}
  /// Views bytes of u8, such as an encoded gradient.
  template <class T>
  requires(std::is_convertible_v<T*, Byte*>) BasicElements(std::span<T> bytes)
      : data_(bytes.data()), size_(bytes.size()), type_(DType::u8) {}
  operator BasicElements<const std::byte>() const { return {data_, size_, type_, processor_}; }

  Byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  DType type() const { return type_; }
  std::size_t size_bytes() const { return size_ * psring::size_bytes(type_); }
  Processor* processor() const { return processor_; }
  /// REQUIRES: the elements lie in the host's memory.
  std::span<Byte> bytes() const {
    require_host();
    return {data_, size_bytes()};
  }

  BasicElements subspan(std::size_t begin, std::size_t size) const {
    return {data_ + begin * psring::size_bytes(type_), size, type_, processor_};
  }
  BasicElements part(Range range) const { return subspan(range.begin, range.size()); }

  /// REQUIRES: the elements have this type and lie in the host's memory.
  template <class T>
  auto as() const {
    using Value = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    check(type_ == kDTypeOf<T>, "elements of type {}, not {}", name_of(type_), name_of(kDTypeOf<T>));
    require_host();
    return std::span<Value>(reinterpret_cast<Value*>(data_), size_);
  }

 private:
  void require_host() const { check(processor_ == nullptr, "the host reads elements of a device"); }

  Byte* data_ = nullptr;
  std::size_t size_ = 0;
  Processor* processor_ = nullptr;
  DType type_ = DType::f32;
};

using Elements = BasicElements<std::byte>;
using ConstElements = BasicElements<const std::byte>;

/// Computes on elements in memory that the host cannot read, such as a GPU's. Operations are queued and run in order.
/// The functions below compute on the host's own elements, and forward other elements to their processor.
class Processor {
 public:
  virtual ~Processor() = default;
  /// Copies between this processor and the host, in either direction, or within this processor. Rounds if the types
  /// differ and both views lie on this processor. On return the host's memory may be read or overwritten.
  virtual void copy(ConstElements from, Elements to) = 0;
  /// The same as the functions with these names. All elements lie on this processor.
  virtual void multiply(Elements values, float factor) = 0;
  virtual void add(Elements sum, ConstElements values) = 0;
  virtual void subtract(Elements from, ConstElements values) = 0;
  virtual void round(DType type, Elements values) = 0;
  virtual void clear(Elements values) = 0;
};

/// Convert to f32 and from f32. Narrowing rounds to the nearest value, ties to even. The sizes must be equal.
void widen(ConstElements from, std::span<float> to);
void narrow(std::span<const float> from, Elements to);
/// Widens or narrows, or copies if both are f32. One of both must be f32.
void convert(ConstElements from, Elements to);
/// Rounds each value to the nearest value that `type` can represent. REQUIRES: `values` are f32.
void round_to(DType type, Elements values);
/// Copies elements; the sizes must be equal. REQUIRES: the types are equal, or exactly one view lies on the host.
void copy(ConstElements from, Elements to);
/// Sets all values to zero.
void clear(Elements values);
/// values = values * factor, computed in f32 and rounded once.
void multiply(Elements values, float factor);
/// sum = sum + values, computed in f32 and rounded once. The sizes must be equal.
void add(Elements sum, ConstElements values);
/// from = from - values, computed in f32 and rounded once. The sizes must be equal.
void subtract(Elements from, ConstElements values);

/// Makes elements readable on the host: the elements themselves, or a copy if they lie on a device.
class OnHost {
 public:
  explicit OnHost(ConstElements values) : values_(values) {
    if (values.processor() == nullptr) return;
    copy_.resize(values.size_bytes());
    const Elements here(copy_.data(), values.size(), values.type());
    copy(values, here);
    values_ = here;
  }
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;
  ConstElements values() const { return values_; }

 private:
  std::vector<std::byte> copy_;
  ConstElements values_;
};

/// Number of elements in one block of a loop: a multiple of kCut that fits in the first-level cache.
inline constexpr std::size_t kElementsBlock = 2048;

/// Calls body(f32 values, their range) for each block of `values`. The body sees the elements themselves if they are
/// f32, else a widened copy.
template <class Body>
void for_each_widened(ConstElements values, Body&& body) {
  if (values.type() == DType::f32) return body(values.as<float>(), Range{0, values.size()});
  float block[kElementsBlock];
  for (std::size_t begin = 0; begin < values.size(); begin += kElementsBlock) {
    const Range range{begin, std::min(begin + kElementsBlock, values.size())};
    widen(values.part(range), {block, range.size()});
    body(std::span<const float>(block, range.size()), range);
  }
}

}  // namespace psring
