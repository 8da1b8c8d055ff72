#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <psring/optim/exact_sum.h>

namespace psring::optim {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire form is the form in memory");

constexpr int kLowestExponent = -1074;  // exponent of the lowest bit of words_[0]
constexpr std::uint64_t kMantissa = (std::uint64_t{1} << 52) - 1;

}  // namespace

void ExactSum::add(double term) {
  const auto bits = std::bit_cast<std::uint64_t>(term);
  const std::uint64_t exponent = bits >> 52 & 0x7ff;
  if (exponent == 0x7ff) {
    nan_ = 1;
    return;
  }
  const std::uint64_t mantissa = (bits & kMantissa) | (exponent == 0 ? 0 : kMantissa + 1);
  const std::uint64_t shift = exponent == 0 ? 0 : exponent - 1;
  const std::uint64_t low = mantissa << shift % 64;
  const std::uint64_t high = mantissa >> 1 >> (63 - shift % 64);  // one shift by 64 bits would be undefined
  std::size_t i = shift / 64;
  if (bits >> 63 == 0) {
    words_[i] += low;
    const std::uint64_t second = high + (words_[i] < low);  // high < 2^53, so the sum does not overflow
    words_[++i] += second;
    bool carry = words_[i] < second;
    while (carry && ++i < kWords) carry = ++words_[i] == 0;
  } else {
    const std::uint64_t second = high + (words_[i] < low);
    words_[i] -= low;
    bool borrow = words_[++i] < second;
    words_[i] -= second;
    while (borrow && ++i < kWords) borrow = words_[i]-- == 0;
  }
}

void ExactSum::merge(const ExactSum& other) {
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < kWords; ++i) {
    const std::uint64_t partial = words_[i] + carry;
    carry = partial < carry;
    words_[i] = partial + other.words_[i];
    carry += words_[i] < partial;
  }
  nan_ |= other.nan_;
}

double ExactSum::value() const {
  if (nan_ != 0) return std::numeric_limits<double>::quiet_NaN();
  const bool negative = words_[kWords - 1] >> 63 != 0;
  std::array<std::uint64_t, kWords> magnitude = words_;
  if (negative) {
    bool carry = true;
    for (std::uint64_t& word : magnitude) {
      word = ~word + carry;
      carry = carry && word == 0;
    }
  }
  std::size_t top = kWords - 1;
  while (top > 0 && magnitude[top] == 0) --top;

  // Takes the 64 bits below the highest set bit, and sets the lowest of them if any lower bit is set (a sticky bit).
  // The conversion to double, which is 11 bits shorter, then rounds as the whole number would.
  std::uint64_t leading = magnitude[top];
  int exponent = kLowestExponent;
  if (top > 0) {
    const int zeros = std::countl_zero(leading);
    std::uint64_t below = magnitude[top - 1];
    if (zeros > 0) {
      leading = leading << zeros | below >> (64 - zeros);
      below <<= zeros;
    }
    for (std::size_t i = 0; i + 1 < top; ++i) below |= magnitude[i];
    leading |= below != 0 ? 1 : 0;
    exponent += static_cast<int>(64 * top) - zeros;
  }
  const double result = std::ldexp(static_cast<double>(leading), exponent);
  return negative ? -result : result;
}

void ExactSum::store(std::span<std::byte, kBytes> out) const { std::memcpy(out.data(), this, kBytes); }

ExactSum ExactSum::load(std::span<const std::byte, kBytes> bytes) {
  ExactSum sum;
  std::memcpy(&sum, bytes.data(), kBytes);
  sum.nan_ = sum.nan_ != 0 ? 1 : 0;
  return sum;
}

}  // namespace psring::optim
