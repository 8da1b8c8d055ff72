#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/layout.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/device/buffer.h>
#include <psring/common/net/transport.h>
#include <psring/server/shard_options.h>

namespace psring::server {

/// Moves a push's payload into memory of its own, booked as communication until the message is dropped: a follower
/// acknowledges a push before its shard has used it. REQUIRES: the ledger outlives the message.
void copy_payload(net::Message& push, MemoryLedger& ledger);

/// The gradients of one piece's pushes. Compressed ones are decoded when all of them are there, into memory that the
/// next piece uses again.
class PushPayloads {
 public:
  /// REQUIRES: options and ledger outlive this.
  PushPayloads(const ShardOptions& options, MemoryLedger& ledger) : options_(options), ledger_(ledger) {}

  /// `largest`: elements of the largest trained piece.
  void open(DType gradient_type, std::size_t largest);
  /// Returns the gradients in the order of the pushes; they lie in the pushes, or here until the next call. REQUIRES:
  /// each push has passed check_form; at most `pushes_at_once` of them.
  std::vector<ConstElements> of(std::span<const net::Message* const> pushes, const UnitLayout& unit);

 private:
  Elements decoded(std::size_t push, std::size_t elements);

  const ShardOptions& options_;
  MemoryLedger& ledger_;
  DType gradient_type_ = DType::f32;
  std::size_t largest_ = 0;
  Buffer decoded_;  ///< f32; empty without a codec
};

}  // namespace psring::server
