#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include <psring/common/base/dtype.h>
#include <psring/common/base/elements.h>
#include <psring/common/base/half.h>
#include <psring/common/base/range.h>

namespace psring::ring {

/// A value and its index: the element of a maxloc or minloc reduction.
template <class T>
struct Located {
  T value{};
  std::int64_t index = 0;
};

/// The type of a collective's elements: a number, or a Located number.
struct ElementType {
  DType dtype = DType::f32;
  bool located = false;

  constexpr std::size_t bytes() const { return located ? 2 * sizeof(std::int64_t) : size_bytes(dtype); }
  friend constexpr bool operator==(const ElementType&, const ElementType&) = default;
};

/// "f32", "f32 with index"
std::string to_string(ElementType type);

template <class T>
struct ElementTypeOf;
template <>
struct ElementTypeOf<float> {
  static constexpr ElementType kValue{DType::f32};
};
template <>
struct ElementTypeOf<double> {
  static constexpr ElementType kValue{DType::f64};
};
template <>
struct ElementTypeOf<Half> {
  static constexpr ElementType kValue{DType::f16};
};
template <>
struct ElementTypeOf<BFloat16> {
  static constexpr ElementType kValue{DType::bf16};
};
template <>
struct ElementTypeOf<std::int8_t> {
  static constexpr ElementType kValue{DType::i8};
};
template <>
struct ElementTypeOf<std::uint8_t> {
  static constexpr ElementType kValue{DType::u8};
};
template <>
struct ElementTypeOf<std::int32_t> {
  static constexpr ElementType kValue{DType::i32};
};
template <>
struct ElementTypeOf<std::int64_t> {
  static constexpr ElementType kValue{DType::i64};
};
template <class T>
struct ElementTypeOf<Located<T>> {
  static constexpr ElementType kValue{ElementTypeOf<T>::kValue.dtype, true};
};

template <class Byte>
struct BasicVector;
/// Contiguous elements of one type: the operand of a collective. Does not own them.
using Vector = BasicVector<std::byte>;
using ConstVector = BasicVector<const std::byte>;

template <class Byte>
struct BasicVector {
  Byte* data = nullptr;
  std::size_t count = 0;
  ElementType type;
  Processor* processor = nullptr;  ///< the device whose memory holds them; null: the host

  BasicVector() = default;
  BasicVector(Byte* bytes, std::size_t elements, ElementType element, Processor* of = nullptr)
      : data(bytes), count(elements), type(element), processor(of) {}
  template <class T, std::size_t Extent>
  requires(!std::is_const_v<T> || std::is_const_v<Byte>) BasicVector(std::span<T, Extent> values)
      : data(reinterpret_cast<Byte*>(values.data())),
        count(values.size()),
        type(ElementTypeOf<std::remove_const_t<T>>::kValue) {}
  BasicVector(const BasicElements<Byte>& values)
      : data(values.data()), count(values.size()), type{values.type()}, processor(values.processor()) {}

  std::size_t bytes() const { return count * type.bytes(); }
  BasicVector part(Range range) const { return {data + range.begin * type.bytes(), range.size(), type, processor}; }
  operator ConstVector() const requires(!std::is_const_v<Byte>) { return {data, count, type, processor}; }
};

}  // namespace psring::ring
