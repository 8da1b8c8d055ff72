#pragma once

#include <string>

#include <psring/common/base/system/file.h>
#include <psring/worker/data/dataset.h>

namespace psring::worker {

// A fingerprint tells whether data is the same as a checkpoint's data: its length, the CRC32C of 64 blocks at fixed
// places, and, below 1 GiB, the CRC32C of everything.

/// Returns "11538 bytes, sample 1a2b3c4d, whole 5e6f7081". Blocks have 64 KiB.
std::string fingerprint_of(const InputFile& file);

/// Returns the same of a data set's values, as training reads them: "600 samples of 785 values, sample ..., whole ...".
/// The way in which a file writes a number, or compresses it, does not matter. A block is a sample.
std::string fingerprint_of(const Dataset& data);

/// Returns the same of the sampled blocks alone, with the keys of samples: "600 samples of 785 values, sample ...".
std::string sample_of(const Dataset& data);
std::string sample_of(const InputFile& file);

/// Returns the fingerprints of both splits. The data sets must outlive the returned function.
std::function<std::string()> fingerprint_of_both(const Dataset& train, const Dataset* test);

}  // namespace psring::worker
