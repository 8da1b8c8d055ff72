#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <psring/worker/data/dataset.h>

namespace psring::worker {

/// The format of a token file: bytes, or 16-bit little-endian numbers.
enum class TokenFormat : std::uint8_t { bytes, u16 };

/// Loads a text of L tokens with context T: floor((L - 1) / T) samples. Sample i reads the tokens i·T … i·T + T - 1 and
/// predicts the next token of each. The last twentieth of the samples, rounded down, is the test split; with fewer than
/// 20 samples, test is null.
///
/// The file stays on disk, in the page cache that all processes of a host share; a sample is one read. Throws data,
/// naming the file, if it is too short for one sample, if u16 tokens have an odd number of bytes, or if a token is not
/// below `vocab` (all tokens are checked here; the error names the position).
DataSplit load_tokens(const std::string& path, TokenFormat format, std::size_t context, std::size_t vocab);

}  // namespace psring::worker
