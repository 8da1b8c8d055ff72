#pragma once

#include <cstddef>
#include <cstdint>

#include <psring/common/base/layout.h>

namespace psring::optim {

/// The finaliser of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014): a
/// bijection, so that different keys have different hashes, and the key can be read back. Everything behind the data
/// set stores, sorts and sends h = mix64(key).
constexpr std::uint64_t mix64(std::uint64_t key) {
  key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9U;
  key = (key ^ (key >> 27)) * 0x94D049BB133111EBU;
  return key ^ (key >> 31);
}

/// The inverse of mix64.
constexpr std::uint64_t unmix64(std::uint64_t h) {
  h = (h ^ (h >> 31) ^ (h >> 62)) * 0x319642B2D24D8EC3U;
  h = (h ^ (h >> 27) ^ (h >> 54)) * 0x96DE1B173F119089U;
  return h ^ (h >> 30) ^ (h >> 60);
}

/// The bucket of a hashed key: its top 20 bits. Buckets ascend with hashed keys.
constexpr std::size_t bucket_of(std::uint64_t h) { return static_cast<std::size_t>(h >> 44); }
static_assert(kBuckets == std::size_t{1} << 20);

/// With several features in one table, the key of a feature's id. REQUIRES: id < 2^56, feature < 256.
inline constexpr unsigned kFeatureShift = 56;
constexpr std::uint64_t fused_key(std::size_t feature, std::uint64_t id) {
  return std::uint64_t{feature} << kFeatureShift | id;
}

}  // namespace psring::optim
