#pragma once

#include <psring/common/base/layout.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/net/transport.h>
#include <psring/server/shard_options.h>

namespace psring::server {

// A push may wait in the shard for the other workers. Both functions move its payload into memory of the shard, booked
// as communication until the message is dropped. REQUIRES: the ledger outlives the message.

/// Copies the payload. A worker that was sent an acknowledgement may overwrite the gradient, and the payload may lie in
/// the worker's own memory.
void copy_payload(net::Message& push, MemoryLedger& ledger);

/// Replaces a compressed gradient by its values in f32. Padding becomes zero: a codec may read other values there, as a
/// sign is never zero. Throws protocol if no values have these bytes. REQUIRES: a codec.
void decode_payload(net::Message& push, const ShardOptions& options, const UnitLayout& unit, MemoryLedger& ledger);

}  // namespace psring::server
