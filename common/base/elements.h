#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include <psring/common/base/dtype.h>
#include <psring/common/base/error.h>
#include <psring/common/base/half.h>
#include <psring/common/base/range.h>

namespace psring {

template <class T>
inline constexpr DType kDTypeOf = DType::f32;
template <>
inline constexpr DType kDTypeOf<Half> = DType::f16;
template <>
inline constexpr DType kDTypeOf<BFloat16> = DType::bf16;

class Processor;

/// Numbers of f32, f16 or bf16, one after the other, borrowed: parameters and gradients, in the type that they are kept
/// and sent in. Arithmetic happens in f32, by the processor whose memory they lie in. Of u8: bytes, which are copied.
template <class Byte>
class BasicElements {
 public:
  BasicElements() = default;
  /// `processor`: null: the host.
  BasicElements(Byte* data, std::size_t size, DType type, Processor* processor = nullptr)
      : data_(data), size_(size), processor_(processor), type_(type) {}
  /// Of f32: a span, a vector.
  using Float = std::conditional_t<std::is_const_v<Byte>, const float, float>;
  template <class T>
  requires(std::is_convertible_v<T*, Float*>) BasicElements(std::span<T> values)
      : data_(reinterpret_cast<Byte*>(values.data())), size_(values.size()) {}
  BasicElements(std::conditional_t<std::is_const_v<Byte>, const std::vector<float>, std::vector<float>>& values)
      : BasicElements(std::span<Float>(values)) {}
  /// Of u8: what others make of numbers.
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
  /// REQUIRES: they lie in the host's memory.
  std::span<Byte> bytes() const {
    require_host();
    return {data_, size_bytes()};
  }

  BasicElements subspan(std::size_t begin, std::size_t size) const {
    return {data_ + begin * psring::size_bytes(type_), size, type_, processor_};
  }
  BasicElements part(Range range) const { return subspan(range.begin, range.size()); }

  /// REQUIRES: they are of this type, and lie in the host's memory.
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

/// Works on elements in memory that the host does not read: a GPU. What it is told is queued, in its order. The host
/// works on its own by the functions below, which pass on to a processor what is not the host's.
class Processor {
 public:
  virtual ~Processor() = default;
  /// From the host or here, to the host or here; rounded where types differ, and both lie here. On return the host's
  /// may be read, or written again.
  virtual void copy(ConstElements from, Elements to) = 0;
  /// As the functions of these names; all of it here.
  virtual void multiply(Elements values, float factor) = 0;
  virtual void add(Elements sum, ConstElements values) = 0;
  virtual void subtract(Elements from, ConstElements values) = 0;
  virtual void round(DType type, Elements values) = 0;
  virtual void clear(Elements values) = 0;
};

/// Rounded to the nearest, ties to even, where the type is narrower. Equal sizes.
void widen(ConstElements from, std::span<float> to);
void narrow(std::span<const float> from, Elements to);
/// The one or the other; where both are f32, a copy. Either is.
void convert(ConstElements from, Elements to);
/// Each to the nearest value that elements of this type have. REQUIRES: they are f32.
void round_to(DType type, Elements values);
/// Equal sizes. REQUIRES: of one type, where both are the host's, or just one of them.
void copy(ConstElements from, Elements to);
/// To zero.
void clear(Elements values);
/// values = values * factor, in f32, rounded once.
void multiply(Elements values, float factor);
/// sum = sum + values, in f32, rounded once. Equal sizes.
void add(Elements sum, ConstElements values);
/// from = from - values, alike.
void subtract(Elements from, ConstElements values);

/// Elements where the host can read them: themselves, or a copy of a device's.
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

/// Of elements that are worked on at once: a multiple of kCut that stays in the first-level cache.
inline constexpr std::size_t kElementsBlock = 2048;

/// Calls body(part in f32, its range) for each block of `values`: themselves where they are f32, else a widened copy.
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
