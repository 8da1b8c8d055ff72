#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include <psring/common/net/key.h>

namespace psring::net {

/// One direction of an encrypted stream: each chunk is encrypted, and authenticated together with its position in the
/// stream (libsodium's secretstream, XChaCha20-Poly1305). A key is used for one stream, once.

inline constexpr std::size_t kSealBytes = 17;  ///< the bytes that sealing adds to a chunk
using SealHead = std::array<std::byte, 24>;    ///< the stream's first bytes, which the opener needs

class Sealer {
 public:
  explicit Sealer(const Mac& key);
  ~Sealer();
  Sealer(Sealer&&) noexcept;
  Sealer& operator=(Sealer&&) noexcept;

  const SealHead& head() const { return head_; }
  /// REQUIRES: sealed.size() == plain.size() + kSealBytes.
  void seal(std::span<const std::byte> plain, std::span<std::byte> sealed);

 private:
  struct State;
  std::unique_ptr<State> state_;
  SealHead head_;
};

class Opener {
 public:
  Opener(const Mac& key, const SealHead& head);
  ~Opener();
  Opener(Opener&&) noexcept;
  Opener& operator=(Opener&&) noexcept;

  /// Writes `plain` if the chunk is genuine and the next of the stream; throws protocol otherwise.
  /// REQUIRES: sealed.size() == plain.size() + kSealBytes.
  void open(std::span<const std::byte> sealed, std::span<std::byte> plain);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace psring::net
