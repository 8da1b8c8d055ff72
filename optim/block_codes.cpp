#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <psring/common/base/text/error.h>
#include <psring/optim/block_codes.h>

namespace psring::optim {
namespace {

constexpr float kLeastScale = 1e-30F;
constexpr int kDecades = 7;

/// Magnitudes from the map's least to 1 fall into cells by exponent and seven bits of fraction. A cell holds at most
/// one boundary between two codes, so that one comparison finds the nearest code.
constexpr std::uint32_t kCellShift = 16;
constexpr std::uint32_t kFirstCell = 0x33000000U >> kCellShift;  // 3e-8
constexpr std::uint32_t kLastCell = 0x3F800000U >> kCellShift;   // 1
constexpr std::size_t kCells = kLastCell - kFirstCell + 1;

struct Magnitudes {
  std::array<float, 256> value{};            ///< ascending; value[0] is 0
  std::array<float, 256> upper{};            ///< the boundary to the next value
  std::array<std::uint8_t, kCells> lower{};  ///< by cell: the value of the cell's least magnitude
  std::size_t count = 0;
};

struct Tables {
  std::array<float, 256> map{};
  Magnitudes magnitudes;
};

/// The positive values of a dynamic tree: decade i has `fractions << i` equal intervals of [0.1, 1], and their middles.
constexpr std::size_t add_decades(std::array<float, 256>& values, std::size_t fractions) {
  std::size_t count = 0;
  double decade = 1e-6;
  for (int i = 0; i < kDecades; ++i, decade *= 10) {
    const std::size_t intervals = fractions << i;
    for (std::size_t j = 0; j < intervals; ++j)
      values[count++] =
          static_cast<float>(decade * (0.1 + 0.9 * (static_cast<double>(j) + 0.5) / static_cast<double>(intervals)));
  }
  values[count++] = 1;
  return count;
}

constexpr Tables make_tables(CodeMap kind) {
  Tables tables;
  std::array<float, 256> positive{};
  const std::size_t count = add_decades(positive, kind == CodeMap::squares ? 2 : 1);
  Magnitudes& magnitudes = tables.magnitudes;
  magnitudes.count = count + 1;
  for (std::size_t i = 0; i < count; ++i) magnitudes.value[i + 1] = positive[i];
  for (std::size_t i = 0; i + 1 < magnitudes.count; ++i)
    magnitudes.upper[i] = 0.5F * (magnitudes.value[i] + magnitudes.value[i + 1]);
  magnitudes.upper[magnitudes.count - 1] = 2;
  if (kind == CodeMap::squares) magnitudes.upper[0] = 0;  // only 0 itself is 0
  std::size_t at = 0;
  for (std::size_t cell = 0; cell < kCells; ++cell) {
    const float least = std::bit_cast<float>(static_cast<std::uint32_t>(cell + kFirstCell) << kCellShift);
    while (least > magnitudes.upper[at]) ++at;
    magnitudes.lower[cell] = static_cast<std::uint8_t>(at);
  }
  magnitudes.lower[0] = 0;  // smaller magnitudes count as this cell's
  // Codes ascend with the values: negative ones, 0, positive ones. The signed map's least magnitude has no negative.
  std::size_t code = 0;
  if (kind == CodeMap::signed_values)
    for (std::size_t i = count; i-- > 1;) tables.map[code++] = -positive[i];
  tables.map[code++] = 0;
  for (std::size_t i = 0; i < count; ++i) tables.map[code++] = positive[i];
  return tables;
}

constexpr Tables kSigned = make_tables(CodeMap::signed_values);
constexpr Tables kSquares = make_tables(CodeMap::squares);
static_assert(kSigned.map[0] == -1 && kSigned.map[127] == 0 && kSigned.map[255] == 1);
static_assert(kSquares.map[0] == 0 && kSquares.map[255] == 1);

const Tables& tables_of(CodeMap map) { return map == CodeMap::squares ? kSquares : kSigned; }

/// Returns NaN if a value is not finite.
float largest_magnitude(const float* values) {
  std::uint32_t most = 0;  // the bits of magnitudes have their order, with infinity and NaN at the end
  for (std::size_t i = 0; i < kCodeBlock; ++i)
    most = std::max(most, std::bit_cast<std::uint32_t>(values[i]) & 0x7FFFFFFFU);
  return most < 0x7F800000U ? std::bit_cast<float>(most) : std::numeric_limits<float>::quiet_NaN();
}

void encode_block(CodeMap map, const float* values, std::byte* block) {
  const Magnitudes& magnitudes = tables_of(map).magnitudes;
  constexpr std::size_t kSignedZero = 127;
  float scale = largest_magnitude(values);
  if (scale < kLeastScale) scale = 0;
  std::memcpy(block, &scale, sizeof scale);
  auto* const codes = reinterpret_cast<std::uint8_t*>(block + sizeof scale);
  float x[kCodeBlock];  // magnitudes, from 0 to 1
  std::uint32_t cell[kCodeBlock];
  const float divisor = scale > 0 ? scale : 1;  // 1 also for NaN
  const float usable = scale > 0 ? 1.0F : 0.0F;
  for (std::size_t i = 0; i < kCodeBlock; ++i) {
    const float magnitude = std::abs(values[i] / divisor);
    x[i] = usable == 0 ? 0 : magnitude;
    const std::uint32_t whole = std::bit_cast<std::uint32_t>(x[i]) >> kCellShift;
    cell[i] = std::clamp(whole, kFirstCell, kLastCell) - kFirstCell;
  }
  for (std::size_t i = 0; i < kCodeBlock; ++i) {
    std::size_t at = magnitudes.lower[cell[i]];
    at += x[i] > magnitudes.upper[at] ? 1 : 0;
    if (map == CodeMap::signed_values) {
      // The least magnitude has no negative code: 0 and the next magnitude are the nearest. Without branches, which
      // would be mispredicted for every second value.
      const std::size_t negative = std::bit_cast<std::uint32_t>(values[i]) >> 31;
      const std::size_t positive_code = kSignedZero + at;
      at += negative & static_cast<std::size_t>(at == 1) & static_cast<std::size_t>(x[i] > 0.5F * magnitudes.value[2]);
      const std::size_t negative_code = kSignedZero + static_cast<std::size_t>(at > 0) - at;
      at = positive_code ^ ((positive_code ^ negative_code) & (0 - negative));
    }
    codes[i] = static_cast<std::uint8_t>(at);
  }
}

}  // namespace

std::span<const float> code_values(CodeMap map) { return tables_of(map).map; }

void encode_blocks(CodeMap map, std::span<const float> values, std::span<std::byte> blocks) {
  check(values.size() % kCodeBlock == 0 && blocks.size() == code_bytes(values.size()), "{} values in {} bytes",
        values.size(), blocks.size());
  for (std::size_t b = 0; b < values.size() / kCodeBlock; ++b)
    encode_block(map, values.data() + b * kCodeBlock, blocks.data() + b * kCodeBlockBytes);
}

void decode_blocks(CodeMap map, std::span<const std::byte> blocks, std::span<float> values) {
  check(values.size() % kCodeBlock == 0 && blocks.size() == code_bytes(values.size()), "{} values in {} bytes",
        values.size(), blocks.size());
  const float* const table = tables_of(map).map.data();
  for (std::size_t b = 0; b < values.size() / kCodeBlock; ++b) {
    const std::byte* const block = blocks.data() + b * kCodeBlockBytes;
    float scale = 0;
    std::memcpy(&scale, block, sizeof scale);
    const auto* const codes = reinterpret_cast<const std::uint8_t*>(block + sizeof scale);
    float* const out = values.data() + b * kCodeBlock;
    for (std::size_t i = 0; i < kCodeBlock; ++i) out[i] = scale * table[codes[i]];
  }
}

}  // namespace psring::optim
