#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <psring/worker/data/dataset.h>

namespace psring::worker {

/// How a file holds tokens: its bytes, or 16-bit numbers, little-endian.
enum class TokenFormat : std::uint8_t { bytes, u16 };

/// A text of L tokens at context T: floor((L - 1) / T) samples. Sample i reads tokens i·T … i·T + T - 1
/// and predicts each one's successor. The last twentieth of the samples, rounded down, is the test split;
/// with fewer than 20 samples there is none (test is null).
///
/// The file stays on disk, in the page cache that all processes of a host share; a sample is one read.
/// Throws data, naming the file, where it is too short for one sample, where u16 tokens have an odd number
/// of bytes, or where a token is not below `vocab` (all are looked at here; the position is named).
DataSplit load_tokens(const std::string& path, TokenFormat format, std::size_t context, std::size_t vocab);

}  // namespace psring::worker
