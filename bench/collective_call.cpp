#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include <psring/bench/collective_call.h>
#include <psring/common/base/half.h>
#include <psring/common/base/text/error.h>

namespace psring::bench {
namespace {

using Redop = ring::ReduceOp::Kind;

constexpr std::size_t kPeriod = 61;
constexpr std::size_t kRankShift = 5;
constexpr std::size_t kReduced = static_cast<std::size_t>(-1);
constexpr std::size_t kChunkBytes = 16384;  // a chunk stays in the first-level cache while it is copied

template <class T>
void store_as(std::int64_t value, std::byte* at) {
  T element;
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
    element = T(static_cast<float>(value));
  else
    element = static_cast<T>(value);
  std::memcpy(at, &element, sizeof element);
}

void store(DType dtype, std::int64_t value, std::byte* at) {
  switch (dtype) {
    case DType::f32:
      return store_as<float>(value, at);
    case DType::f64:
      return store_as<double>(value, at);
    case DType::f16:
      return store_as<Half>(value, at);
    case DType::bf16:
      return store_as<BFloat16>(value, at);
    case DType::i8:
      return store_as<std::int8_t>(value, at);
    case DType::u8:
      return store_as<std::uint8_t>(value, at);
    case DType::i32:
      return store_as<std::int32_t>(value, at);
    case DType::i64:
      return store_as<std::int64_t>(value, at);
  }
}

std::int64_t combine(Redop op, std::int64_t a, std::int64_t b) {
  switch (op) {
    case Redop::sum:
    case Redop::mean:
      return a + b;
    case Redop::product:
      return a * b;
    case Redop::min:
      return std::min(a, b);
    case Redop::max:
      return std::max(a, b);
    case Redop::logical_and:
      return a != 0 && b != 0;
    case Redop::logical_or:
      return a != 0 || b != 0;
    case Redop::logical_xor:
      return (a != 0) != (b != 0);
    case Redop::bit_and:
      return a & b;
    case Redop::bit_or:
      return a | b;
    case Redop::bit_xor:
      return a ^ b;
    default:
      fail(ErrorKind::bug, "a reduction that is not measured");
  }
}

/// The elements that a rank gives or gets: the whole vector, its part of it, or the whole vector at the root alone.
enum class Share : std::uint8_t { whole, part, root };

struct Traits {
  std::string_view name;
  const char* about;
  bool reduces;
  bool has_parts;
  Share input;
  Share result;
};

/// By CollectiveKind.
constexpr std::array<Traits, 9> kTraits{{
    {"all_reduce", "every rank gets the reduction of all ranks' vectors", true, false, Share::whole, Share::whole},
    {"reduce_scatter", "every rank gets its part of the reduction", true, true, Share::whole, Share::part},
    {"all_gather", "every rank gets all ranks' parts", false, true, Share::part, Share::whole},
    {"broadcast", "every rank gets the root's vector", false, false, Share::root, Share::whole},
    {"reduce", "the root gets the reduction of all ranks' vectors", true, false, Share::whole, Share::root},
    {"gather", "the root gets all ranks' parts", false, true, Share::part, Share::root},
    {"scatter", "every rank gets its part of the root's vector", false, true, Share::root, Share::part},
    {"all_to_all", "every rank gets its part of each rank's vector", false, true, Share::whole, Share::whole},
    {"sendrecv", "every rank sends to the next and receives from the one before", false, false, Share::whole,
     Share::whole},
}};

const Traits& traits(CollectiveKind kind) { return kTraits.at(static_cast<std::size_t>(kind)); }

std::size_t elements(const CollectiveCall& call, Share share) {
  if (share == Share::part) return call.part();
  return share == Share::whole || call.at_root() ? call.count : 0;
}

}  // namespace

const std::vector<CollectiveKind>& all_collectives() {
  using enum CollectiveKind;
  static const std::vector<CollectiveKind> all{all_reduce, reduce_scatter, all_gather, broadcast, reduce,
                                               gather,     scatter,        all_to_all, sendrecv};
  return all;
}

std::string_view to_string(CollectiveKind kind) { return traits(kind).name; }
const char* about(CollectiveKind kind) { return traits(kind).about; }
bool reduces(CollectiveKind kind) { return traits(kind).reduces; }
bool has_parts(CollectiveKind kind) { return traits(kind).has_parts; }
bool has_root(CollectiveKind kind) { return traits(kind).input == Share::root || traits(kind).result == Share::root; }

std::size_t CollectiveCall::input() const { return elements(*this, traits(kind).input); }
std::size_t CollectiveCall::result() const { return elements(*this, traits(kind).result); }

double CollectiveCall::bus_factor() const {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (kind) {
    case CollectiveKind::all_reduce:
      return 2 * others;
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_gather:
    case CollectiveKind::all_to_all:
      return others;
    default:
      return 1;
  }
}

CollectiveCall::Traffic CollectiveCall::traffic() const {
  const std::size_t whole = bytes();
  const std::size_t one = whole / ranks;
  switch (kind) {
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::reduce:
      return {whole, one};
    case CollectiveKind::all_gather:
      return {whole - one, whole - one};
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
      return {one, one};
    default:
      return {whole, whole};
  }
}

Contents::Contents(const CollectiveCall& call)
    : call_(call), chunk_(std::max<std::size_t>(1, kChunkBytes / (kPeriod * size_bytes(call.dtype))) * kPeriod) {
  std::vector<std::int64_t> values(kPeriod);
  for (std::size_t i = 0; i < kPeriod; ++i) values[i] = value(0, i, 0);
  block_ = block(values);
}

/// REQUIRES: value(r, i, t) depends only on (i + 5 r + t) mod kPeriod.
std::int64_t Contents::value(std::size_t rank, std::size_t index, std::size_t iteration) const {
  const std::size_t at = (index + kRankShift * rank + iteration) % kPeriod;
  const auto small = static_cast<std::int64_t>((at * at + 3 * at) / 2 % 4);
  if (!reduces(call_.kind)) return static_cast<std::int64_t>(at);
  if (call_.redop == Redop::product) return 1 + small % 2;
  // A multiple of ranks, so that the mean is a whole number, too.
  return call_.redop == Redop::mean ? small * call_.ranks : small;
}

std::int64_t Contents::reduced(std::size_t index, std::size_t iteration) const {
  std::int64_t result = value(0, index, iteration);
  for (std::size_t r = 1; r < call_.ranks; ++r) result = combine(call_.redop, result, value(r, index, iteration));
  return call_.redop == Redop::mean ? result / call_.ranks : result;
}

/// Returns one period of values, repeated, so that `chunk_` elements can be copied from any of the first kPeriod
/// offsets.
std::vector<std::byte> Contents::block(const std::vector<std::int64_t>& values) const {
  const std::size_t size = size_bytes(call_.dtype);
  std::vector<std::byte> bytes((chunk_ + kPeriod) * size);
  for (std::size_t i = 0; i < chunk_ + kPeriod; ++i) store(call_.dtype, values[i % kPeriod], &bytes[i * size]);
  return bytes;
}

void Contents::fill(std::byte* input, std::size_t iteration) const {
  const std::size_t size = size_bytes(call_.dtype);
  const std::byte* from = &block_[(kRankShift * call_.rank + iteration) % kPeriod * size];
  for (std::size_t left = call_.input(); left > 0;) {
    const std::size_t now = std::min(left, chunk_);
    std::memcpy(input, from, now * size);
    input += now * size;
    left -= now;
  }
}

std::vector<Contents::Piece> Contents::pieces() const {
  const CollectiveCall& c = call_;
  std::vector<Piece> pieces;
  const auto from_all = [&](std::size_t offset) {
    for (std::size_t r = 0; r < c.ranks; ++r) pieces.push_back({r * c.part(), c.part(), r, offset});
  };
  switch (c.kind) {
    case CollectiveKind::all_reduce:
      return {{0, c.count, kReduced, 0}};
    case CollectiveKind::reduce_scatter:
      return {{0, c.part(), kReduced, c.rank * c.part()}};
    case CollectiveKind::reduce:
      return {{0, c.result(), kReduced, 0}};
    case CollectiveKind::broadcast:
      return {{0, c.count, c.root, 0}};
    case CollectiveKind::scatter:
      return {{0, c.part(), c.root, c.rank * c.part()}};
    case CollectiveKind::sendrecv:
      return {{0, c.count, c.previous(), 0}};
    case CollectiveKind::all_gather:
      from_all(0);
      return pieces;
    case CollectiveKind::gather:
      if (c.at_root()) from_all(0);
      return pieces;
    case CollectiveKind::all_to_all:
      from_all(c.rank * c.part());
      return pieces;
  }
  return pieces;
}

std::size_t Contents::differing(const std::byte* values, std::size_t count, const std::vector<std::byte>& expected,
                                std::size_t shift) const {
  const std::size_t size = size_bytes(call_.dtype);
  const std::byte* should = &expected[shift % kPeriod * size];
  std::size_t wrong = 0;
  for (std::size_t begin = 0; begin < count; begin += chunk_) {
    const std::size_t now = std::min(count - begin, chunk_);
    const std::byte* is = values + begin * size;
    if (std::memcmp(is, should, now * size) == 0) continue;
    for (std::size_t i = 0; i < now; ++i) wrong += std::memcmp(is + i * size, should + i * size, size) != 0;
  }
  return wrong;
}

std::size_t Contents::count_wrong(const std::byte* result, std::size_t iteration) const {
  std::vector<std::int64_t> sums(kPeriod);
  for (std::size_t i = 0; reduces(call_.kind) && i < kPeriod; ++i) sums[i] = reduced(i, iteration);
  const std::vector<std::byte> sums_block = block(sums);
  std::size_t wrong = 0;
  for (const Piece& piece : pieces()) {
    const std::byte* at = result + piece.at * size_bytes(call_.dtype);
    wrong += piece.from == kReduced
                 ? differing(at, piece.count, sums_block, piece.offset)
                 : differing(at, piece.count, block_, piece.offset + kRankShift * piece.from + iteration);
  }
  return wrong;
}

}  // namespace psring::bench
